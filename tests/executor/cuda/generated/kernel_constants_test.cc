#include "executor/cuda/generated/kernel_constants.h"

#include "doctest/doctest.h"

using narrowcast::executor::cuda::generated::without_variables;

TEST_CASE("integral constants become enumerators of the same type") {
  CHECK(without_variables("inline constexpr uint32_t bytes = 1u << 4;  // of a block\n") ==
        "enum : uint32_t { bytes = 1u << 4 };\n");
  CHECK(without_variables("  static constexpr bool is_raw = true, is_exact = f(1, 2);\n") ==
        "enum : bool { is_raw = true, is_exact = f(1, 2) };\n");
}

TEST_CASE("other constants become functions, which are called where the constants are used") {
  CHECK(without_variables(
            "inline constexpr Type narrow{2, 8};\nType f() { return x::narrow; } int narrower(narrow);\n") ==
        "constexpr Type narrow() { return {2, 8}; }\nType f() { return x::narrow(); } int narrower(narrow());\n");
  CHECK(
      without_variables("template <typename T>\ninline constexpr int words = 8 / sizeof(T);\nint a[words<char>];\n") ==
      "template <typename T>\nconstexpr int words() { return 8 / sizeof(T); }\nint a[words<char>()];\n");
}

TEST_CASE("enumerations that are members are found by their qualified names, also before their definition") {
  CHECK(without_variables("int f(int op) { return g<T::op>(op); }\nstatic constexpr ncast_redop op = NCAST_MIN;\n") ==
        "int f(int op) { return g<T::op()>(op); }\nstatic constexpr ncast_redop op() { return NCAST_MIN; }\n");
}

TEST_CASE("functions, arrays and constants of functions stay as they are") {
  for (const char* const line :
       {"static constexpr uint32_t of(int n) { return n; }\n", "inline constexpr int list[] = {1, 2};\n",
        "constexpr int ahead = 4;\n", "static constexpr Sizes sizes = sizes_of(4);\n",
        "static constexpr bool has(int = 3);\n", "int x = 3;\n", "\n"})
    CHECK(without_variables(line) == line);
}
