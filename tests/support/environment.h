// Sets an environment variable of this process for the duration of a scope.
#pragma once

#include <cstdlib>
#include <string>

namespace narrowcast::testing {

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

}  // namespace narrowcast::testing
