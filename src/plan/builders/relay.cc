// relay: a broadcast of one piece for each receiver. The root sends every receiver its piece, which the receiver stores
// and sends to the other receivers. So every rank sends about as much as it receives.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {

ncast_status relay(const Request& request, Plan* plan) {
  const int root = request.root;
  Writer writer(request, "relay", request.ranks > 2 ? static_cast<uint32_t>(request.ranks) - 1 : 1, plan);
  const std::vector<int> receivers = writer.others(root);  // the i-th one relays chunk i
  writer.group(root);
  if (receivers.empty()) writer.copy(root, input(0), {output(0)});
  for (uint32_t chunk = 0; chunk < receivers.size(); ++chunk) {
    const int receiver = receivers[chunk];
    if (chunk > 0) writer.group(root);
    writer.copy(root, input(chunk), {writer.as_received(output(chunk)), writer.message(root, receiver)});
    for (uint32_t other = 0; other < receivers.size(); ++other) {
      writer.group(receiver);
      if (other != chunk) {
        writer.copy(receiver, writer.message(receivers[other], receiver), {output(other)});
        continue;
      }
      std::vector<Operand> to = {output(chunk)};
      for (const int peer : receivers) {
        if (peer != receiver) to.push_back(writer.message(receiver, peer));
      }
      writer.copy(receiver, writer.message(root, receiver), to);
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders
