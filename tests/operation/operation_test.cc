// The table of operations, through C++ and through the C API.
#include "operation/operation.h"

#include <cstring>
#include <string>

#include "doctest/doctest.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::operation {
namespace {

ncast_operation_info info_of(ncast_operation operation) {
  ncast_operation_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(ncast_operation_describe(operation, &info) == NCAST_OK);
  return info;
}

TEST_CASE("numbers of operations never change") {
  CHECK(NCAST_OP_SEND == 0);
  CHECK(NCAST_OP_RECV == 1);
  CHECK(NCAST_OP_BROADCAST == 2);
  CHECK(NCAST_OP_REDUCE == 3);
  CHECK(NCAST_OP_GATHER == 4);
  CHECK(NCAST_OP_SCATTER == 5);
  CHECK(NCAST_OP_ALL_GATHER == 6);
  CHECK(NCAST_OP_ALL_TO_ALL == 7);
  CHECK(NCAST_OP_ALL_TO_ALL_V == 8);
  CHECK(NCAST_OP_REDUCE_SCATTER == 9);
  CHECK(NCAST_OP_ALL_REDUCE == 10);
  CHECK(ncast_operation_count() == 11);
}

TEST_CASE("every operation is described by its number and found by its name") {
  for (int number = 0; number < ncast_operation_count(); ++number) {
    const auto info = info_of(static_cast<ncast_operation>(number));
    CHECK(info.operation == number);
    CHECK(std::string(info.function) == std::string("ncast_") + info.name);
    REQUIRE(find(info.name).has_value());
    CHECK(static_cast<int>(*find(info.name)) == number);
    // A call names a root, a peer, or no rank, and has at least one buffer.
    CHECK(info.has_root + info.has_peer <= 1);
    CHECK((info.send != NCAST_BUFFER_NONE || info.recv != NCAST_BUFFER_NONE));
    // Operations with a root, and no others, have a buffer that only the root uses.
    const auto is_roots = [](ncast_operation_buffer buffer) {
      return buffer == NCAST_BUFFER_ROOT_PIECE || buffer == NCAST_BUFFER_ROOT_PIECES;
    };
    CHECK((is_roots(info.send) || is_roots(info.recv)) == (info.has_root != 0));
  }
  CHECK_FALSE(find("all_reduces").has_value());
}

TEST_CASE("descriptions have the properties of the operations") {
  const auto reduce_scatter = info_of(NCAST_OP_REDUCE_SCATTER);
  CHECK(std::string(reduce_scatter.name) == "reduce_scatter");
  CHECK(reduce_scatter.reduces == 1);
  CHECK(reduce_scatter.has_root == 0);
  CHECK(reduce_scatter.in_place == 1);
  CHECK(reduce_scatter.packets == 1);
  CHECK(reduce_scatter.send == NCAST_BUFFER_PIECES);
  CHECK(reduce_scatter.recv == NCAST_BUFFER_PIECE);
  const auto broadcast = info_of(NCAST_OP_BROADCAST);
  CHECK(std::string(broadcast.nccl_functions) == "ncclBroadcast ncclBroadcastConfig ncclBcast");
  CHECK(broadcast.has_root == 1);
  CHECK(broadcast.reduces == 0);
  CHECK(info_of(NCAST_OP_ALL_TO_ALL_V).packets == 0);
  CHECK(info_of(NCAST_OP_ALL_TO_ALL).in_place == 0);
  CHECK(info_of(NCAST_OP_SEND).has_peer == 1);
}

TEST_CASE("bus factors are those of nccl-tests") {
  CHECK(ncast_operation_bus_factor(NCAST_OP_SEND, 4) == 1);
  CHECK(ncast_operation_bus_factor(NCAST_OP_BROADCAST, 4) == 1);
  CHECK(ncast_operation_bus_factor(NCAST_OP_REDUCE, 4) == 1);
  CHECK(ncast_operation_bus_factor(NCAST_OP_ALL_GATHER, 4) == 0.75);
  CHECK(ncast_operation_bus_factor(NCAST_OP_ALL_TO_ALL, 4) == 0.75);
  CHECK(ncast_operation_bus_factor(NCAST_OP_REDUCE_SCATTER, 4) == 0.75);
  CHECK(ncast_operation_bus_factor(NCAST_OP_ALL_REDUCE, 4) == 1.5);
  CHECK(ncast_operation_bus_factor(NCAST_OP_ALL_REDUCE, 0) == 0);
  CHECK(ncast_operation_bus_factor(static_cast<ncast_operation>(11), 4) == 0);
}

TEST_CASE("callers of older and newer versions are supported") {
  struct Newer {
    ncast_operation_info info;
    int64_t added;
  } newer;
  std::memset(&newer, 0xff, sizeof newer);
  newer.info.struct_bytes = sizeof newer;
  REQUIRE(ncast_operation_describe(NCAST_OP_SEND, &newer.info) == NCAST_OK);
  CHECK(newer.info.struct_bytes == sizeof newer);
  CHECK(std::string(newer.info.name) == "send");
  CHECK(newer.added == 0);

  ncast_operation_info older;
  std::memset(static_cast<void*>(&older), 0xff, sizeof older);
  older.struct_bytes = offsetof(ncast_operation_info, reduces);
  REQUIRE(ncast_operation_describe(NCAST_OP_ALL_REDUCE, &older) == NCAST_OK);
  CHECK(std::string(older.name) == "all_reduce");
  CHECK(older.reduces == -1);  // not written
}

TEST_CASE("invalid arguments of ncast_operation_describe are rejected") {
  ncast_operation_info info = {};
  CHECK(ncast_operation_describe(NCAST_OP_SEND, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "ncast_operation_describe: info is NULL");
  CHECK(ncast_operation_describe(NCAST_OP_SEND, &info) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_operation_describe: info->struct_bytes is 0, not the size of the struct");
  info.struct_bytes = sizeof info;
  for (const int number : {-1, 11}) {
    CHECK(ncast_operation_describe(static_cast<ncast_operation>(number), &info) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()) ==
          "ncast_operation_describe: operation is " + std::to_string(number) + ", which is not an operation");
  }
}

}  // namespace
}  // namespace narrowcast::operation
