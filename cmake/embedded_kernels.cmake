# Embeds the sources that generated kernels include (src/executor/cuda/generated/kernel_sources.h), with the codecs to
# which they belong. A file is written again only when one of them has changed.
function(embed_kernel_sources target file)
  add_custom_target(${file}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${PROJECT_BINARY_DIR}/${file}.cc ${ARGN}
            -P ${PROJECT_SOURCE_DIR}/cmake/kernel_sources.cmake
    BYPRODUCTS ${PROJECT_BINARY_DIR}/${file}.cc
    COMMENT "Embedding the sources of generated kernels")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/${file}.cc)
  add_dependencies(${target} ${file})
endfunction()
embed_kernel_sources(narrowcast_codecs kernel_sources)
