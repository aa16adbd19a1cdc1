# What narrowcast/device.cuh includes of src/, to be installed below narrowcast/device/. In the source tree that folder
# is a link to src/. These headers include each other relative to themselves, so that they resolve wherever the folders
# stand side by side; tools/check_arrows.py checks that, and that this list is complete.
set(device_headers
  channel/cuda/bounded_wait.cuh
  channel/cuda/kernel_channels.h
  channel/cuda/kernel_ports.h
  channel/cuda/memory_channel.h
  channel/cuda/packet_rings.h
  channel/cuda/peers.h
  channel/cuda/port_channel.cuh
  channel/cuda/warp_channel.cuh
  channel/cuda/warp_grant.cuh
  channel/cuda/warp_packets.cuh
  channel/port_fifo.h
  channel/port_request.h
  codec/window/escapes.cuh
  codec/window/kernel.cuh
  codec/window/packing.cuh
  codec/window/parts.cuh
  codec/window/placement.cuh
  device/copy.cuh
  device/ptx/system_memory.cuh
  device/reduce.cuh
  device/warp.cuh
  format/frame.h
  format/window.h)

# The public headers, with these, to `destination`/narrowcast.
function(install_headers destination)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/narrowcast DESTINATION ${destination} ${ARGN}
          PATTERN device EXCLUDE)
  foreach(header IN LISTS device_headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/src/${header} DESTINATION ${destination}/narrowcast/device/${folder} ${ARGN})
  endforeach()
endfunction()
