// The files of tests/golden/rows_v1: models, rows and payloads.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "codec/buffers.h"
#include "doctest/doctest.h"
#include "store/rows/row_codec.h"

namespace narrowcast::tests::golden_rows {

inline const std::filesystem::path folder = std::filesystem::path(NARROWCAST_TEST_DATA) / "golden" / "rows_v1";

inline Bytes read(const std::string& name) {
  std::ifstream file(folder / name, std::ios::binary);
  INFO("file ", (folder / name).string());
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The vectors of a kind in manifest.txt.
inline std::vector<std::string> names_of(const std::string& kind) {
  std::ifstream manifest(folder / "manifest.txt");
  REQUIRE(manifest);
  std::vector<std::string> found;
  for (std::string line; std::getline(manifest, line);) {
    std::istringstream fields(line);
    std::string of_line, name;
    fields >> of_line >> name;
    if (of_line == kind) found.push_back(name);
  }
  REQUIRE(!found.empty());
  return found;
}

inline store::RowModel model_of(const std::string& name) {
  std::string problem;
  const auto model = store::RowModel::parse(read(name + ".model"), &problem);
  REQUIRE_MESSAGE(model.has_value(), problem);
  return *model;
}

}  // namespace narrowcast::tests::golden_rows
