// Whether the tests run under a sanitizer. They are many times as slow then, and the other build runs all cases: here
// it suffices that every line of the library's code runs, on data of every kind.
#pragma once

namespace narrowcast::tests {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace narrowcast::tests
