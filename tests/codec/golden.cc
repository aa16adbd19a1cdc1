// The frames in tests/golden/: everything that was ever written must still decode, and today's encoders write the same
// bytes.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "buffers.h"
#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "support/frame_info.h"

namespace narrowcast::tests {
namespace {

const std::filesystem::path folder = std::filesystem::path(NARROWCAST_TEST_DATA) / "golden" / "v1";

Bytes read(const std::string& name) {
  std::ifstream file(folder / name, std::ios::binary);
  INFO("file ", (folder / name).string());
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Vector {
  std::string kind, name;
  int dtype;
  ncast_codec codec;
  uint32_t flags;
};

std::vector<Vector> vectors_of(const std::string& kind) {
  std::ifstream manifest(folder / "manifest.txt");
  REQUIRE(manifest);
  std::vector<Vector> found;
  for (std::string line; std::getline(manifest, line);) {
    std::istringstream fields(line);
    Vector vector{};
    fields >> vector.kind >> vector.name;
    if (kind == "encoded" || kind == "lossy") fields >> vector.dtype >> vector.codec >> vector.flags;
    if (vector.kind == kind) found.push_back(vector);
  }
  REQUIRE(!found.empty());
  return found;
}

constexpr uint32_t both_paths[] = {0, NCAST_REFERENCE};

void require_decodes(const std::string& name, const char* decoded) {
  const Bytes frame = read(name + ".frame"), values = read(name + decoded);
  for (const uint32_t path : both_paths) {
    const Exact from(frame);
    Guarded to(values.size());
    REQUIRE(ncast_decode(from.data(), frame.size(), path, to.data(), to.size(), nullptr) == NCAST_OK);
    REQUIRE(to.intact());
    REQUIRE(to.copy(values.size()) == values);
  }
  REQUIRE(ncast_inspect_blocks(frame.data(), frame.size(), nullptr, 0) == NCAST_OK);
}

}  // namespace

TEST_CASE("golden frames decode to their values") {
  for (const std::string kind : {"encoded", "decodes", "lossy"})
    for (const Vector& vector : vectors_of(kind)) {
      INFO("vector ", vector.name);
      require_decodes(vector.name, kind == "lossy" ? ".decoded" : ".values");
    }
}

TEST_CASE("today's encoders write the golden frames, byte for byte") {
  std::vector<Vector> vectors = vectors_of("encoded"), lossy = vectors_of("lossy");
  vectors.insert(vectors.end(), lossy.begin(), lossy.end());
  for (const Vector& vector : vectors) {
    INFO("vector ", vector.name);
    const auto dtype = static_cast<ncast_dtype>(vector.dtype);
    const ncast_codec codec = vector.codec;
    const Bytes frame = read(vector.name + ".frame"), values = read(vector.name + ".values");
    for (const uint32_t path : both_paths) {
      Guarded to(frame.size());
      size_t wire_bytes = 0;
      REQUIRE(ncast_encode(values.data(), dtype, values.size() / ncast_dtype_bytes(dtype), codec,
                           encoder_flags(vector.flags) | path, to.data(), to.size(), &wire_bytes) == NCAST_OK);
      REQUIRE(to.copy(wire_bytes) == frame);
    }
  }
}

TEST_CASE("golden invalid frames are refused as corrupt by both decoders") {
  for (const Vector& vector : vectors_of("invalid")) {
    INFO("vector ", vector.name);
    const Bytes frame = read(vector.name + ".frame");
    const Exact from(frame);
    for (const uint32_t path : both_paths) {
      Guarded to(65536);
      REQUIRE(ncast_decode(from.data(), frame.size(), path, to.data(), to.size(), nullptr) == NCAST_CORRUPT);
      REQUIRE(to.intact());
      REQUIRE(std::string(ncast_last_error()).starts_with("ncast_decode: "));
    }
  }
}

TEST_CASE("the golden frames hold blocks and escapes of every kind that counters tell apart") {
  std::map<std::string, uint64_t> all;
  for (const Vector& vector : vectors_of("encoded")) {
    const Bytes frame = read(vector.name + ".frame");
    for (const auto& [name, count] : block_counters(frame.data(), frame.size())) all[name] += count;
  }
  CHECK(all.size() == 12);
  for (const auto& [name, count] : all) {
    CAPTURE(name);
    CHECK(count > 0);
  }
  CHECK(all["escapes"] > all["far_escapes"]);
}

}  // namespace narrowcast::tests
