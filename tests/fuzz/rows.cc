// Parses arbitrary bytes as a model and decodes arbitrary bytes with it; all decoders agree.
//   bytes 0-1: length of the model (mod 4096); then the model; then a header word and a body
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "store/rows/fast.h"

using namespace narrowcast;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  size_t model_bytes = (data[0] | static_cast<size_t>(data[1]) << 8) % 4096;
  data += 2, bytes -= 2;
  if (model_bytes > bytes) model_bytes = bytes;
  std::string problem;
  const auto model = store::RowModel::parse({data, model_bytes}, &problem);
  FUZZ_CHECK(model.has_value() || !problem.empty());
  data += model_bytes, bytes -= model_bytes;
  // The reference is slow: long rows would take most of the time.
  if (!model || bytes < 4 || model->shape().row_bytes() > 512) return 0;

  uint32_t header;
  std::memcpy(&header, data, sizeof header);
  const std::vector<uint8_t> body(data + 4, data + bytes);
  const size_t row_bytes = model->shape().row_bytes();
  std::vector<uint8_t> row(row_bytes);
  const bool ok = model->decode(header, body.data(), body.size(), row.data());
  if ((header & (store::place_mask | store::raw_bit)) == 0 && !model->uncoded()) {
    std::vector<uint8_t> expected(row_bytes);
    FUZZ_CHECK(store::reference.decode(model->model(), header, body.data(), body.size(), expected.data()) == ok);
    FUZZ_CHECK(!ok || row == expected);
    for (const store::InstructionSet set : store::instruction_sets()) {
      std::vector<uint8_t> other(row_bytes);
      FUZZ_CHECK(store::fast_coder(model->model(), set)
                     .decode(model->model(), header, body.data(), body.size(), other.data()) == ok);
      FUZZ_CHECK(!ok || row == other);
    }
  }
  if (!ok) return 0;
  // Encoding the decoded row restores it.
  std::vector<uint8_t> payload(model->bound()), back(row_bytes);
  const size_t payload_bytes = model->encode(row.data(), payload.data());
  FUZZ_CHECK(payload_bytes <= payload.size());
  std::memcpy(&header, payload.data(), sizeof header);
  FUZZ_CHECK(model->decode(header, payload.data() + 4, payload_bytes - 4, back.data()));
  FUZZ_CHECK(back == row);
  return 0;
}
