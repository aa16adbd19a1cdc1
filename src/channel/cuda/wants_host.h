#pragma once

namespace narrowcast::channel {

// NARROWCAST_P2P=0: payloads are to go through host memory, whether GPUs can reach each other or not.
bool wants_host_memory();

}  // namespace narrowcast::channel
