#include "select/candidate.h"

#include <algorithm>
#include <stdexcept>

#include "codec/codec.h"

namespace narrowcast::select {

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = [] {
    std::vector<Candidate> list = {{"packets", Transport::packets}};
    for (const codec::Row& row : codec::fixed_rows())
      list.push_back({std::string("blocks:") + row.name, Transport::blocks, row.id});
    for (const codec::Row& row : codec::rows())
      list.push_back({std::string("frames:") + row.name, Transport::frames, row.id});
    list.push_back({"steps", Transport::steps});
    list.push_back({"nccl", Transport::nccl});
    list.push_back({"nccl:default", Transport::nccl});
    return list;
  }();
  return all;
}

std::optional<size_t> find_candidate(std::string_view name) {
  const auto found = std::ranges::find(candidates(), name, &Candidate::name);
  if (found == candidates().end()) return std::nullopt;
  return static_cast<size_t>(found - candidates().begin());
}

size_t index_of(std::string_view name) {
  const auto found = find_candidate(name);
  if (!found) throw std::logic_error("no candidate " + std::string(name));
  return *found;
}

size_t index_of(Transport transport, ncast_codec codec) {
  const auto found = std::ranges::find_if(candidates(), [&](const Candidate& one) {
    return one.transport == transport && one.codec == codec::id_of(codec);
  });
  return static_cast<size_t>(found - candidates().begin());
}

std::vector<size_t> candidates_of(Link link) {
  std::vector<size_t> list;
  for (size_t i = 0; i < candidates().size(); ++i)
    if (runs_on(candidates()[i], link)) list.push_back(i);
  return list;
}

}  // namespace narrowcast::select
