// The hash by which GPUs notice that ranks make different calls.
#include <algorithm>
#include <set>

#include "channel/peer/call_word.h"
#include "doctest/doctest.h"
#include "executor/call.h"

namespace narrowcast::testing {
namespace {

using channel::CallWord;
using executor::call_mark;
using executor::CallTag;
using executor::Operation;

CallTag some_tag() {
  CallTag tag = {};
  tag.count = 1000;
  tag.operation = Operation::all_reduce;
  tag.dtype = NCAST_BFLOAT16;
  tag.codec = 1;
  return tag;
}

// The marks of tags that change(tag, i) makes of the same one, for i below `cases`.
template <typename Change>
std::set<uint32_t> marks_of(uint32_t cases, Change change) {
  std::set<uint32_t> marks;
  for (uint32_t i = 0; i < cases; ++i) {
    CallTag tag = some_tag();
    change(tag, i);
    marks.insert(call_mark(tag));
  }
  return marks;
}

TEST_CASE("calls that differ in one argument have different marks") {
  CHECK(marks_of(NCAST_OPERATIONS, [](CallTag& tag, uint32_t i) {
          tag.operation = static_cast<Operation>(i);
        }).size() == NCAST_OPERATIONS);
  CHECK(marks_of(256, [](CallTag& tag, uint32_t i) { tag.dtype = static_cast<uint8_t>(i); }).size() == 256);
  CHECK(marks_of(256, [](CallTag& tag, uint32_t i) { tag.codec = static_cast<uint8_t>(i); }).size() == 256);
  for (const int parameter : {16, 32, 48})
    CHECK(marks_of(4096, [&](CallTag& tag, uint32_t i) { tag.codec |= ncast_codec{i} << parameter; }).size() == 4096);
  CHECK(marks_of(256, [](CallTag& tag, uint32_t i) { tag.redop = static_cast<uint8_t>(i); }).size() == 256);
  CHECK(marks_of(64, [](CallTag& tag, uint32_t i) { tag.root = static_cast<int32_t>(i); }).size() == 64);
  for (const int shift : {0, 7, 20, 52})
    CHECK(marks_of(4096, [&](CallTag& tag, uint32_t i) { tag.count = uint64_t{i} << shift; }).size() == 4096);
}

TEST_CASE("a mark fits flags, is never 0, and does not depend on what ranks need not share") {
  for (const uint32_t mark : marks_of(100'000, [](CallTag& tag, uint32_t i) { tag.count = uint64_t{i} * 7919; })) {
    REQUIRE(mark != 0);
    REQUIRE(mark < 1u << channel::call_mark_bits);
  }
  CHECK(marks_of(100, [](CallTag& tag, uint32_t i) {
          tag.sequence = i;
          tag.position = 3 * i;
          tag.chunk_elems = 5 * i;
        }).size() == 1);
}

TEST_CASE("call words disagree where they are of the same call only") {
  const CallWord word = CallWord::of(0xfffffffe, 0x1abc);
  CHECK(word.number() == 0xfffffffe);
  CHECK(word.mark() == 0x1abc);
  CHECK_FALSE(word.disagrees_with(word));
  CHECK(CallWord::of(0xfffffffe, 0x1abd).disagrees_with(word));
  CHECK_FALSE(CallWord::of(0xffffffff, 0x1abd).disagrees_with(word));
  CHECK_FALSE(CallWord::of(0xfffffffd, 0x1abd).disagrees_with(word));
  CHECK_FALSE(CallWord{0}.disagrees_with(CallWord::of(0, 0x1abc)));
}

}  // namespace
}  // namespace narrowcast::testing
