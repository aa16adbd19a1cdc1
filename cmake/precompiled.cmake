# The headers of the standard library that most sources include are compiled once and not with every source: parsing
# them takes longer than the rest of most sources. By default only in the build with sanitizers: the other build finds
# what this one does not. A source can use a header here without including it, and gcc 12 has false positives in headers
# that are precompiled, so warnings are no errors.
set(precompiled_headers <algorithm> <array> <atomic> <chrono> <cinttypes> <condition_variable> <cstdio> <cstring>
  <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <tuple> <unordered_map>
  <vector>)

# precompile_headers(target [header...]): the headers above, and these.
function(precompile_headers target)
  if(NARROWCAST_PRECOMPILED)
    target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${ARGN})
  endif()
endfunction()

# The same headers as for another target, whose compiler options must be the same.
function(reuse_precompiled_headers target other)
  if(NARROWCAST_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
