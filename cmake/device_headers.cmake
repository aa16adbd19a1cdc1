# The headers of src/ that narrowcast/device.cuh includes. They are installed below narrowcast/device/; in the source
# tree that folder is a link to src/. They include each other by relative paths, which are the same in both places.
# tools/check_dependencies.py checks that, and that this list is complete.
set(device_headers
  channel/peer/bounded_wait.cuh
  channel/memory/kernel_channels.h
  channel/port/kernel_ports.h
  channel/memory/memory_channel.h
  channel/packet/packet_rings.h
  channel/peer/peers.h
  channel/port/port_channel.cuh
  channel/memory/warp_channel.cuh
  channel/memory/warp_grant.cuh
  channel/packet/warp_packets.cuh
  channel/port/fifo.h
  channel/port/request.h
  codec/window/block.cuh
  codec/window/escapes.cuh
  codec/window/kernel.cuh
  codec/window/packing.cuh
  codec/window/parts.cuh
  codec/window/placement.cuh
  device/block_codec.cuh
  device/block_context.h
  device/coder_codec.cuh
  device/copy.cuh
  device/lane_values.cuh
  device/ptx/system_memory.cuh
  device/reduce.cuh
  device/warp.cuh
  codec/frame/layout.h
  codec/window/format.h)

# Installs the public headers and the ones above to `destination`/narrowcast.
function(install_headers destination)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/narrowcast DESTINATION ${destination} ${ARGN}
          PATTERN device EXCLUDE)
  foreach(header IN LISTS device_headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/src/${header} DESTINATION ${destination}/narrowcast/device/${folder} ${ARGN})
  endforeach()
endfunction()
