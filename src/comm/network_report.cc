// The report of narrowcast/network.h.
#include <string>
#include <vector>

#include "bootstrap/descriptor.h"
#include "bootstrap/host.h"
#include "bootstrap/tcp_address.h"
#include "channel/network/carrier.h"
#include "narrowcast/network.h"
#include "nlohmann/json.hpp"
#include "status/text.h"

namespace {

using namespace narrowcast;
using Json = nlohmann::ordered_json;

Json report_of_network() {
  constexpr auto anywhere = bootstrap::Reach::anywhere;
  const std::string why = bootstrap::why_several_hosts(), wanted = bootstrap::wanted_interfaces(anywhere);
  Json report = {{"host", bootstrap::host_name()}, {"host_id", bootstrap::own_host()}, {"several_hosts", why},
                 {"wanted_interfaces", wanted},    {"addresses", Json::array()},       {"error", ""}};
  const std::string network = channel::wanted_network();
  channel::Carrier carrier;
  std::string why_tcp;
  const ncast_status found = channel::find_carrier(network, &carrier, &why_tcp);
  report["network"] = network;
  report["carrier"] = found == NCAST_OK ? carrier.name() : "";
  report["transports"] = carrier.ucx != nullptr ? carrier.ucx->transports() : "";
  report["why_tcp"] = why_tcp;
  report["carrier_error"] = found == NCAST_OK ? "" : ncast_last_error();
  std::vector<bootstrap::InterfaceAddress> addresses;
  bootstrap::Descriptor listener;
  bootstrap::TcpAddress used = {};
  ncast_status status = bootstrap::listening_addresses(anywhere, wanted, &addresses);
  if (status == NCAST_OK) status = bootstrap::listen(anywhere, wanted, &listener, &used);
  if (status != NCAST_OK) report["error"] = ncast_last_error();
  for (const auto& [interface, address] : addresses)
    report["addresses"].push_back({{"interface", interface},
                                   {"ip", address.ip_text()},
                                   {"listens", status == NCAST_OK && address.ip_text() == used.ip_text()}});
  return report;
}

}  // namespace

ncast_status ncast_network_report(ncast_text** report) {
  return make_text("ncast_network_report", report,
                   [] { return report_of_network().dump(-1, ' ', false, Json::error_handler_t::replace); });
}
