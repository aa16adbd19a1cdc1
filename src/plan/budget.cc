#include "plan/budget.h"

namespace narrowcast::plan {
namespace {

thread_local Budget* current = nullptr;

}  // namespace

void check_limit(const std::string& what, uint64_t number, uint64_t limit) {
  if (number > limit)
    throw TooLarge("the plan is too large: " + what + " " + std::to_string(number) + "; at most " +
                   std::to_string(limit) + " are supported");
}

Budget::Budget(uint64_t most_work, uint64_t most_bytes) : most_work_(most_work), most_bytes_(most_bytes) {
  if (current == nullptr) current = this;
}

Budget::~Budget() {
  if (current == this) current = nullptr;
}

void spend(uint64_t work) {
  if (current != nullptr && (current->work_ += work) > current->most_work_)
    throw TooLarge("the plan is too large: it takes more than " + std::to_string(current->most_work_) + " operations");
}

HeldMemory::~HeldMemory() {
  if (current != nullptr) current->bytes_ -= bytes_;
}

void HeldMemory::grow(uint64_t bytes) {
  if (current == nullptr) return;
  bytes_ += bytes;
  current->bytes_ += bytes;
  if (current->bytes_ > current->most_bytes_)
    throw TooLarge("the plan is too large: it takes more than " + std::to_string(current->most_bytes_ >> 20) +
                   " MiB of memory");
}

}  // namespace narrowcast::plan
