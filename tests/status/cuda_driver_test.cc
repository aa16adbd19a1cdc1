#include "status/cuda_driver.h"

#include "doctest/doctest.h"

using narrowcast::rejected_driver_text;

TEST_CASE("an old driver is reported with the minimum and the remedy") {
  const std::string text = rejected_driver_text(12080);
  CHECK(text.find("the driver supports CUDA 12.8") != std::string::npos);
  CHECK(text.find("needs driver 580 or newer") != std::string::npos);
  CHECK(text.find("forward-compatibility package (cuda-compat-13-0)") != std::string::npos);
}

TEST_CASE("a missing driver is not reported as old") {
  const std::string text = rejected_driver_text(0);
  CHECK(text.find("no NVIDIA driver was found") != std::string::npos);
  CHECK(text.find("needs driver 580 or newer") != std::string::npos);
  CHECK(text.find("compat") == std::string::npos);
}
