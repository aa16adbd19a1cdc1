#include "nccl/calibration/costs_text.h"

#include <cstdio>

namespace narrowcast::nccl {
namespace {

std::string one_line(std::string_view text) {
  std::string result(text);
  for (char& letter : result)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == ';') letter = ' ';
  return result;
}

}  // namespace

std::string CostsKey::line() const {
  char between[40] = "";
  if (hosts != 0) std::snprintf(between, sizeof between, "; hosts %016llx", static_cast<unsigned long long>(hosts));
  return one_line(gpu) + "; " + one_line(processor) + "; " + one_line(link) + "; " + std::to_string(ranks) +
         " ranks; CTAs " + one_line(ctas) + "; driver " + std::to_string(driver) + "; NCCL " + one_line(nccl) +
         "; kernels " + one_line(kernels) + between;
}

void CostsText::add(Operation operation, std::string_view series, uint64_t bytes, double microseconds) {
  if (microseconds >= 0.001) curves_[{operation, std::string(series)}][bytes] = microseconds;
}

std::string CostsText::text(const CostsKey& key) const {
  std::string text = "narrowcast-costs 2 " + one_line(key.gpu) + ", " + one_line(key.processor) + "\nkernels " +
                     one_line(key.kernels) + "\n# " + key.line() + "\n";
  for (const auto& [curve, points] : curves_) {
    text += std::string(name_of(curve.first)) + " " + std::to_string(key.ranks) + " " + key.link + " " + curve.second;
    for (const auto& [bytes, microseconds] : points) {
      char word[64];
      std::snprintf(word, sizeof word, " %llu:%.3f", static_cast<unsigned long long>(bytes), microseconds);
      text += word;
    }
    text += '\n';
  }
  return text;
}

}  // namespace narrowcast::nccl
