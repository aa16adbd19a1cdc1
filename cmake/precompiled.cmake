# The headers of the standard library that most sources include are compiled once and not with every source: parsing
# them takes longer than the rest of most sources. By default only in the build with sanitizers, and for tests that are
# not optimized: the other build of the host code finds what this one does not. A source can use a header here without
# including it, and gcc 12 has false positives in headers that are precompiled, so with sanitizers warnings are no
# errors.
set(precompiled_headers <algorithm> <array> <atomic> <chrono> <cinttypes> <condition_variable> <cstdio> <cstring>
  <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <tuple> <unordered_map>
  <vector>)
if(NARROWCAST_PRECOMPILED)
  target_precompile_headers(narrowcast_host PRIVATE ${precompiled_headers})
endif()

# The headers of narrowcast_host for a target whose compiler options are the same.
function(reuse_precompiled_headers target)
  if(NARROWCAST_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM narrowcast_host)
  endif()
endfunction()
