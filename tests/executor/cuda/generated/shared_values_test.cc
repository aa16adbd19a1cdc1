#include "executor/cuda/generated/shared_values.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using Value = std::shared_ptr<const std::string>;

TEST_CASE("a value is made once while somebody holds it") {
  SharedValues<const std::string> values;
  int made = 0;
  const auto find = [&](const std::string& key) {
    Value value;
    REQUIRE(values.find_or_make(key, &value, [&](Value* result) {
      *result = std::make_shared<const std::string>(key + std::to_string(made++));
      return 0;
    }) == 0);
    return value;
  };
  Value first = find("a");
  CHECK(find("a") == first);
  CHECK(*find("b") == "b1");
  CHECK(find("a") == first);
  first.reset();
  CHECK(*find("a") == "a2");
}

TEST_CASE("threads that need the same value wait for the first") {
  SharedValues<const std::string> values;
  std::atomic<int> made = 0;
  std::vector<Value> found(4);
  {
    std::vector<std::jthread> threads;
    threads.reserve(found.size());
    for (Value& value : found)
      threads.emplace_back([&] {
        values.find_or_make("key", &value, [&](Value* result) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          *result = std::make_shared<const std::string>(std::to_string(made++));
          return 0;
        });
      });
  }
  CHECK(made == 1);
  for (const Value& value : found) CHECK(value == found[0]);
}

TEST_CASE("an error is returned, and the value is made again") {
  SharedValues<const std::string> values;
  Value value;
  CHECK(values.find_or_make("key", &value, [](Value*) { return 7; }) == 7);
  CHECK(value == nullptr);
  const auto make = [](Value* result) {
    *result = std::make_shared<const std::string>("made");
    return 0;
  };
  CHECK(values.find_or_make("key", &value, make) == 0);
  CHECK(*value == "made");
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
