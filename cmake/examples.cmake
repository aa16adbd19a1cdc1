# examples/<number>_<name>/<name>.cu: a program that uses only the public headers and the library, as users'
# programs do. Each runs as a test. Status 77 means skipped: the GPUs that it needs are missing.
set(example_seconds 60)

file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*/*.cu)
foreach(source IN LISTS example_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE narrowcast Threads::Threads)
  target_compile_options(example_${name} PRIVATE -std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra)
  if(NARROWCAST_WERROR)
    target_compile_options(example_${name} PRIVATE -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  set_target_properties(example_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  add_test(NAME example_${name} COMMAND example_${name})
  set_tests_properties(example_${name} PROPERTIES TIMEOUT ${example_seconds} SKIP_RETURN_CODE 77 LABELS gpu)
endforeach()
