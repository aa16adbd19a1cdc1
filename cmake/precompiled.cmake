# The headers of the standard library that most sources include are compiled once and not with every source: parsing
# them takes longer than the rest of most sources. By default only in the builds of CI: with sanitizers, or with kernels
# that are not optimized. A source can use a header here without including it, which tools/check_includes.py finds. With
# sanitizers gcc 12 has false positives in precompiled headers, so there warnings are no errors.
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
