#include "plan/schedule/symmetry.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "plan/sets.h"

namespace narrowcast::plan::schedule {
namespace {

constexpr uint32_t unmatched = std::numeric_limits<uint32_t>::max();

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

uint64_t mix_sorted(uint64_t hash, std::vector<uint64_t>* values) {
  std::ranges::sort(*values);
  for (uint64_t value : *values) hash = mix(hash, value);
  return mix(hash, values->size());
}

using Permutation = std::vector<uint32_t>;  // of ranks

// The groups of all ranks, numbered, with what they wait for.
struct Groups {
  struct Link {  // a step waits for one of another group
    uint32_t group, own_step, other_step;
  };

  explicit Groups(const Plan& all) : plan(all), senders(plan.channels.size(), unmatched), receivers(senders) {
    for (uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
      first.push_back(static_cast<uint32_t>(rank_of.size()));
      rank_of.insert(rank_of.end(), plan.ranks[rank].groups.size(), rank);
    }
    first.push_back(static_cast<uint32_t>(rank_of.size()));
    awaited.resize(size());
    waiting.resize(size());
    for (uint32_t group = 0; group < size(); ++group) {
      const std::vector<Step>& steps = steps_of(group);
      for (uint32_t step = 0; step < steps.size(); ++step) {
        for (const StepId& id : steps[step].after) {
          const uint32_t other = first[rank_of[group]] + id.group;
          awaited[group].push_back({other, step, id.step});
          waiting[other].push_back({group, id.step, step});
        }
        for (const Operand& operand : steps[step].from)
          if (operand.has_channel()) receivers[operand.channel] = group;
        for (const Operand& operand : steps[step].to)
          if (operand.has_channel()) senders[operand.channel] = group;
      }
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(rank_of.size()); }
  const std::vector<Step>& steps_of(uint32_t group) const {
    const uint32_t rank = rank_of[group];
    return plan.ranks[rank].groups[group - first[rank]].steps;
  }

  // By group, what it does and what it waits for. Equal for groups that correspond to each other if one computes it
  // after the ranks have been exchanged.
  std::vector<uint64_t> colors(const Permutation& exchanged) const {
    std::vector<uint64_t> colors(size()), links;
    for (uint32_t group = 0; group < size(); ++group) {
      uint64_t& color = colors[group];
      for (const Step& step : steps_of(group)) {
        color = mix(mix(color, static_cast<uint64_t>(step.kind)), step.count);
        color = mix(mix(color, step.from.size()), step.to.size());
        for (const auto* operands : {&step.from, &step.to}) {
          links.clear();
          for (const Operand& operand : *operands) links.push_back(color_of(operand, exchanged));
          color = mix_sorted(color, &links);
        }
      }
    }
    for (int round = 0; round < 2; ++round) {
      const std::vector<uint64_t> last = colors;
      for (uint32_t group = 0; group < size(); ++group)
        for (const auto* others : {&awaited[group], &waiting[group]}) {
          links.clear();
          for (const Link& link : *others) links.push_back(color_of(link, last));
          colors[group] = mix_sorted(colors[group], &links);
        }
    }
    return colors;
  }

  uint64_t color_of(const Operand& operand, const Permutation& exchanged) const {
    const uint64_t color = mix(static_cast<uint64_t>(operand.place) + 1, static_cast<uint64_t>(operand.codec));
    if (!operand.has_channel()) return color;
    const Channel& channel = plan.channels[operand.channel];
    return mix(mix(color, exchanged[static_cast<size_t>(channel.from)]), exchanged[static_cast<size_t>(channel.to)]);
  }

  static uint64_t color_of(const Link& link, const std::vector<uint64_t>& colors) {
    return mix(mix(colors[link.group], link.own_step), link.other_step);
  }

  const Plan& plan;
  std::vector<uint32_t> first;    // by rank, of its groups
  std::vector<uint32_t> rank_of;  // by group
  std::vector<std::vector<Link>> awaited, waiting;
  std::vector<uint32_t> senders, receivers;  // by channel
};

// Searches for groups and channels that correspond to each other after ranks have been exchanged. A choice decides
// those that wait for each other or share a channel. If it was wrong, nothing is found.
class Matching {
 public:
  Matching(const Plan& plan, const Groups& groups, const Permutation& exchanged)
      : plan_(plan),
        groups_(groups),
        exchanged_(exchanged),
        identity_(exchanged.size()),
        is_taken_(groups.size()),
        images_(groups.size(), unmatched),
        channel_images_(plan.channels.size(), unmatched) {
    std::iota(identity_.begin(), identity_.end(), 0u);
  }

  bool find(const simulate::Machine& machine) {
    colors_ = groups_.colors(exchanged_);
    image_colors_ = groups_.colors(identity_);
    for (uint32_t rank = 0; rank < exchanged_.size(); ++rank)
      if (plan_.ranks[rank].groups.size() != plan_.ranks[exchanged_[rank]].groups.size()) return false;
    std::map<std::pair<uint32_t, uint64_t>, std::vector<uint32_t>> candidates;  // by rank and color; the last one first
    for (uint32_t group = groups_.size(); group-- > 0;)
      candidates[{groups_.rank_of[group], image_colors_[group]}].push_back(group);
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      if (images_[group] != unmatched) continue;
      std::vector<uint32_t>& left = candidates[{exchanged_[groups_.rank_of[group]], colors_[group]}];
      while (!left.empty() && is_taken_[left.back()]) left.pop_back();
      if (left.empty() || !match(group, left.back()) || !follow()) return false;
    }
    return is_valid(machine);
  }

  const std::vector<uint32_t>& images() const { return images_; }  // by group
  const std::vector<uint32_t>& channel_images() const { return channel_images_; }

 private:
  bool match(uint32_t group, uint32_t image) {
    if (images_[group] == image) return true;
    if (images_[group] != unmatched || is_taken_[image] || colors_[group] != image_colors_[image]) return false;
    images_[group] = image;
    is_taken_[image] = true;
    pending_.push_back(group);
    return true;
  }

  bool follow() {
    while (!pending_.empty()) {
      const uint32_t group = pending_.back();
      pending_.pop_back();
      const std::vector<Step>&steps = groups_.steps_of(group), &others = groups_.steps_of(images_[group]);
      if (steps.size() != others.size()) return false;
      for (size_t i = 0; i < steps.size(); ++i)
        if (!match_operands(steps[i].from, others[i].from) || !match_operands(steps[i].to, others[i].to)) return false;
      if (!match_links(groups_.awaited[group], groups_.awaited[images_[group]]) ||
          !match_links(groups_.waiting[group], groups_.waiting[images_[group]]))
        return false;
    }
    return true;
  }

  // Their order decides only between messages of the same ranks.
  bool match_operands(const std::vector<Operand>& operands, const std::vector<Operand>& others) {
    const auto by_color = [&](const std::vector<Operand>& all, const Permutation& exchanged) {
      std::vector<std::pair<uint64_t, size_t>> sorted;
      sorted.reserve(all.size());
      for (size_t i = 0; i < all.size(); ++i) sorted.emplace_back(groups_.color_of(all[i], exchanged), i);
      std::ranges::sort(sorted);
      return sorted;
    };
    if (operands.size() != others.size()) return false;
    const auto own = by_color(operands, exchanged_), image = by_color(others, identity_);
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].first != image[i].first) return false;
      const Operand& operand = operands[own[i].second];
      if (operand.has_channel() && !match_channels(operand.channel, others[image[i].second].channel)) return false;
    }
    return true;
  }

  bool match_channels(uint32_t channel, uint32_t other) {
    uint32_t& image = channel_images_[channel];
    if (image == other) return true;
    if (image != unmatched) return false;
    image = other;
    return match(groups_.senders[channel], groups_.senders[other]) &&
           match(groups_.receivers[channel], groups_.receivers[other]);
  }

  // Of links that look the same, one that is alone corresponds to one that is alone.
  bool match_links(const std::vector<Groups::Link>& links, const std::vector<Groups::Link>& others) {
    if (links.size() != others.size()) return false;
    const auto by_color = [](const std::vector<Groups::Link>& all, const std::vector<uint64_t>& colors) {
      std::vector<std::pair<uint64_t, uint32_t>> sorted;
      sorted.reserve(all.size());
      for (const Groups::Link& link : all) sorted.emplace_back(Groups::color_of(link, colors), link.group);
      std::ranges::sort(sorted);
      return sorted;
    };
    const auto own = by_color(links, colors_), image = by_color(others, image_colors_);
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].first != image[i].first) return false;
      const bool is_alone =
          (i == 0 || own[i - 1].first != own[i].first) && (i + 1 == own.size() || own[i + 1].first != own[i].first);
      if (is_alone && !match(own[i].second, image[i].second)) return false;
    }
    return true;
  }

  bool is_valid(const simulate::Machine& machine) const {
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      const auto ids = [](const std::vector<Groups::Link>& links, auto group_of) {
        std::vector<std::array<uint32_t, 3>> result;
        result.reserve(links.size());
        for (const Groups::Link& link : links) result.push_back({group_of(link.group), link.own_step, link.other_step});
        std::ranges::sort(result);
        return result;
      };
      if (groups_.rank_of[images_[group]] != exchanged_[groups_.rank_of[group]] ||
          ids(groups_.awaited[group], [&](uint32_t other) { return images_[other]; }) !=
              ids(groups_.awaited[images_[group]], [](uint32_t other) { return other; }))
        return false;
      const std::vector<Step>&steps = groups_.steps_of(group), &others = groups_.steps_of(images_[group]);
      for (size_t i = 0; i < steps.size(); ++i)
        if (steps[i].kind != others[i].kind || steps[i].count != others[i].count) return false;
    }
    const auto is_local = [&](const Channel& channel) {
      return channel.from / machine.gpus_per_host == channel.to / machine.gpus_per_host;
    };
    for (size_t i = 0; i < channel_images_.size(); ++i) {
      if (channel_images_[i] == unmatched) continue;
      const Channel &channel = plan_.channels[i], &image = plan_.channels[channel_images_[i]];
      if (channel.depth != image.depth || channel.packets != image.packets || is_local(channel) != is_local(image))
        return false;
    }
    return true;
  }

  const Plan& plan_;
  const Groups& groups_;
  const Permutation& exchanged_;
  Permutation identity_;
  std::vector<uint64_t> colors_, image_colors_;
  std::vector<char> is_taken_;     // by image
  std::vector<uint32_t> pending_;  // groups that have an image, but not yet what belongs to them
  std::vector<uint32_t> images_, channel_images_;
};

// The exchanges that are tried.
std::vector<Permutation> exchanges(uint32_t ranks, uint32_t ranks_per_host) {
  std::vector<Permutation> result;
  const auto add = [&](auto image_of) {
    Permutation& exchanged = result.emplace_back();
    for (uint32_t rank = 0; rank < ranks; ++rank) exchanged.push_back(image_of(rank));
  };
  if (ranks % ranks_per_host != 0) return result;
  for (uint32_t step = 1; step < ranks_per_host; step *= 2)
    add([&](uint32_t rank) {
      const uint32_t first = rank / ranks_per_host * ranks_per_host;
      return first + (rank - first + step) % ranks_per_host;
    });
  for (uint32_t step = ranks_per_host; step < ranks; step *= 2)
    add([&](uint32_t rank) { return (rank + step) % ranks; });
  return result;
}

}  // namespace

bool Symmetry::is_trivial() const {
  for (size_t rank = 0; rank < orbits.ranks.size(); ++rank)
    if (!orbits.is_simulated(rank)) return false;
  return true;
}

Symmetry find_symmetry(const Plan& plan, const simulate::Machine& machine) {
  const auto ranks = static_cast<uint32_t>(plan.ranks.size());
  const Groups groups(plan);
  Sets rank_sets(ranks), group_sets(groups.size()), channel_sets(plan.channels.size());
  // Whether no two groups of a rank would correspond to each other.
  const auto is_free = [&](Sets sets) {
    std::vector<std::pair<uint32_t, uint32_t>> seen;  // set and rank
    seen.reserve(groups.size());
    for (uint32_t group = 0; group < groups.size(); ++group) seen.emplace_back(sets.find(group), groups.rank_of[group]);
    std::ranges::sort(seen);
    return std::ranges::adjacent_find(seen) == seen.end();
  };
  for (const Permutation& exchanged : exchanges(ranks, std::min(ranks, static_cast<uint32_t>(machine.gpus_per_host)))) {
    Matching matching(plan, groups, exchanged);
    if (!matching.find(machine)) continue;
    Sets joined = group_sets;
    for (uint32_t group = 0; group < groups.size(); ++group) joined.join(group, matching.images()[group]);
    if (!is_free(joined)) continue;
    group_sets = std::move(joined);
    for (uint32_t rank = 0; rank < ranks; ++rank) rank_sets.join(rank, exchanged[rank]);
    for (uint32_t channel = 0; channel < plan.channels.size(); ++channel)
      if (matching.channel_images()[channel] != unmatched)
        channel_sets.join(channel, matching.channel_images()[channel]);
  }
  Symmetry result;
  for (uint32_t rank = 0; rank < ranks; ++rank) result.orbits.ranks.push_back(rank_sets.find(rank));
  for (uint32_t channel = 0; channel < plan.channels.size(); ++channel)
    result.orbits.channels.push_back(channel_sets.find(channel));
  // The first one of a set is of the rank that is simulated.
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<uint32_t>& numbers = result.groups.emplace_back();
    for (uint32_t group = groups.first[rank]; group < groups.first[rank + 1]; ++group)
      numbers.push_back(group_sets.find(group) - groups.first[result.orbits.ranks[rank]]);
  }
  return result;
}

}  // namespace narrowcast::plan::schedule
