// A state of the model checker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/verify/plan_view.h"

namespace narrowcast::plan::verify::testing {

enum class Part : uint8_t { idle, begun, posted };

struct Thread {
  uint8_t step = 0;
  Part part = Part::idle;
  auto operator<=>(const Thread&) const = default;
};

struct State {
  std::vector<uint8_t> calls;               // of each rank: twice the call, plus 1 while it runs
  std::vector<std::vector<Thread>> groups;  // of each group, its threads
  std::vector<uint8_t> counts;              // of each channel: messages in flight, or the semaphore
  std::map<Element, uint8_t> packets;       // the call in which they were written, plus 1
  std::map<std::pair<size_t, uint32_t>, std::vector<EngineItem>> engines;  // of groups and channels: what is queued
  auto operator<=>(const State&) const = default;

  std::string key() const {
    std::string text(calls.begin(), calls.end());
    for (const auto& threads : groups)
      for (const Thread& thread : threads) {
        text += static_cast<char>(thread.step);
        text += static_cast<char>(thread.part);
      }
    text.append(counts.begin(), counts.end());
    for (const auto& [element, call] : packets) {
      text += static_cast<char>(element.rank);
      text += static_cast<char>(element.chunk);
      text += static_cast<char>(element.element);
      text += static_cast<char>(call);
    }
    for (const auto& [engine, items] : engines) {
      text += static_cast<char>(engine.first);
      text += static_cast<char>(engine.second);
      text += static_cast<char>(items.size());
      for (const EngineItem& item : items) {
        text += static_cast<char>(item.step);
        text += static_cast<char>(item.position);
      }
    }
    return text;
  }
};

}  // namespace narrowcast::plan::verify::testing
