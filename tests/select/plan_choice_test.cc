// The choice between plans. No GPU is needed.
#include <algorithm>
#include <string>

#include "doctest/doctest.h"
#include "models.h"
#include "select/decider.h"

namespace narrowcast::select {
namespace {

using namespace testing;

// Between four processes, ring is faster than the built-in way from 100000 bytes on, and one_shot below.
const std::string costs =
    "narrowcast-costs 2 a machine\n"
    "all_reduce 4 shm frames:raw 1000:10 100000:100 1000000:1000\n"
    "all_reduce 4 shm plan:one_shot 1000:5 100000:200 1000000:2000\n"
    "all_reduce 4 shm plan:ring 1000:20 100000:99 1000000:500\n"
    "all_gather 4 shm frames:raw 1000:10 1000000:100\n"
    "all_gather 4 shm plan:ring 1000:9.8 1000000:50\n"
    "all_gather 3 shm frames:raw 1000:10\n"
    "all_gather 3 shm plan:halving_doubling 1000:1\n"
    "all_gather 4 nvlink blocks:raw 1000:10\n"
    "all_gather 4 nvlink blocks:window 1000:10\n"
    "all_gather 4 nvlink plan:mine@1 1000:5\n";

class Host {
 public:
  explicit Host(int ranks = 4) : decider({.ranks = ranks, .link = Link::shared_memory}, parsed(costs)) {}

  CallShape call(Operation operation, uint64_t bytes, ncast_dtype dtype = NCAST_FLOAT32,
                 ncast_codec codec = NCAST_CODEC_AUTO) const {
    return decider.shape_of(operation, dtype, codec, bytes);
  }
  std::string plan_of(const CallShape& shape) { return decider.decide(shape).plan; }

  Decider decider;
};

PlanCandidate added(const std::string& name, Operation operation = Operation::all_reduce) {
  PlanCandidate plan;
  plan.name = "plan:" + name;
  plan.plan = name;
  plan.operation = operation;
  plan.ranks = 4;
  plan.codec = NCAST_CODEC_RAW;
  plan.loaded = 1;
  return plan;
}

TEST_CASE("a plan runs only where it was measured to be faster by 3%") {
  Host host;
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000000)) == "ring");
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000)) == "all_pairs");  // 2% faster
  CHECK(host.plan_of(host.call(Operation::all_reduce, 1000)) == "one_shot");
  CHECK(host.plan_of(host.call(Operation::all_reduce, 100000)) == "all_pairs");
  CHECK(host.plan_of(host.call(Operation::broadcast, 1000)) == "all_pairs");  // not measured
  const Decision chosen = host.decider.decide(host.call(Operation::all_gather, 1000000));
  CHECK(chosen.candidate == "plan:ring");
  CHECK(chosen.predicted.typical == 50);
  CHECK(chosen.plan_reason == std::string("it is predicted to be faster than the built-in way"));
  CHECK(host.decider.decide(host.call(Operation::all_gather, 1000)).predicted.typical == 10);
  Host others(2);
  CHECK(others.plan_of(others.call(Operation::all_gather, 1000000)) == "all_pairs");
  Host three(3);  // halving_doubling needs a power of two
  CHECK(three.plan_of(three.call(Operation::all_gather, 1000)) == "all_pairs");
}

TEST_CASE("without measured plans the built-in way runs") {
  Decider decider({.ranks = 4, .link = Link::shared_memory}, {});
  CHECK(!decider.chooses_plans());
  CHECK(decider.decide(decider.shape_of(Operation::all_reduce, NCAST_INT32, NCAST_CODEC_AUTO, 1000)).chosen == nullptr);
}

TEST_CASE("a plan that rounds differently runs only for types that do not round") {
  Host host;
  CHECK(host.plan_of(host.call(Operation::all_reduce, 1000000, NCAST_INT32)) == "ring");
  CHECK(host.plan_of(host.call(Operation::all_reduce, 1000000, NCAST_FLOAT32)) == "all_pairs");
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000000, NCAST_FLOAT32)) == "ring");
}

TEST_CASE("a requested codec has times of its own") {
  Host host;
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000000, NCAST_BFLOAT16, NCAST_CODEC_RAW)) == "ring");
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000000, NCAST_BFLOAT16, NCAST_CODEC_WINDOW)) == "all_pairs");
}

TEST_CASE("alternatives have a time and a reason") {
  Host host;
  const CallShape shape = host.call(Operation::all_reduce, 1000000);
  const Decision decision = host.decider.decide(shape);
  const std::vector<Alternative> all = host.decider.alternatives_of(shape, decision);
  const auto why = [&](const std::string& plan, double microseconds) -> std::string {
    const auto found = std::ranges::find_if(all, [&](const Alternative& one) { return one.plan->plan == plan; });
    REQUIRE(found != all.end());
    CHECK(found->microseconds == doctest::Approx(microseconds));
    return found->why_not == nullptr ? "it runs" : found->why_not;
  };
  CHECK(why("ring", 500) == "it rounds sums in another order or more often");
  CHECK(why("one_shot", 2000) == "it is not predicted to be faster");
  CHECK(why("two_shot", 0) == "its time was not measured");
  const CallShape integers = host.call(Operation::all_reduce, 1000000, NCAST_INT32);
  for (const Alternative& one : host.decider.alternatives_of(integers, host.decider.decide(integers)))
    CHECK((one.why_not == nullptr) == (one.plan->plan == "ring"));
}

TEST_CASE("an added plan runs by its time, or always if it was added so, and only for calls that it suits") {
  Decider decider({.ranks = 4, .link = Link::nvlink}, parsed(costs));
  const auto candidate_of = [&](uint64_t bytes, ncast_dtype dtype = NCAST_FLOAT32, ncast_redop op = NCAST_SUM,
                                int root = 0, Operation operation = Operation::all_gather) {
    return std::string(decider.decide(decider.shape_of(operation, dtype, NCAST_CODEC_AUTO, bytes, op, root)).candidate);
  };
  CHECK(candidate_of(1000) == "blocks:raw");
  decider.add_plan(added("mine@1", Operation::all_gather));
  CHECK(candidate_of(1000) == "plan:mine@1");  // also if the decision was cached
  PlanCandidate large = added("large", Operation::all_gather);
  large.min_bytes = 5000;
  large.max_bytes = 6000;
  large.always = true;
  decider.add_plan(large);
  CHECK(candidate_of(4999) == "plan:mine@1");
  CHECK(candidate_of(5000) == "plan:large");
  CHECK(candidate_of(6000) == "plan:large");
  CHECK(candidate_of(6001) == "plan:mine@1");

  PlanCandidate reduction = added("reduction", Operation::reduce);
  reduction.always = true;
  reduction.has_same_results = false;
  reduction.root = 2;
  reduction.dtype = NCAST_BFLOAT16;
  reduction.redop = NCAST_MAX;
  decider.add_plan(reduction);
  CHECK(candidate_of(1000, NCAST_BFLOAT16, NCAST_MAX, 2, Operation::reduce) == "plan:reduction");
  CHECK(candidate_of(1000, NCAST_BFLOAT16, NCAST_MAX, 1, Operation::reduce) != "plan:reduction");
  CHECK(candidate_of(1000, NCAST_BFLOAT16, NCAST_SUM, 2, Operation::reduce) != "plan:reduction");
  CHECK(candidate_of(1000, NCAST_FLOAT16, NCAST_MAX, 2, Operation::reduce) != "plan:reduction");
  CHECK(candidate_of(0, NCAST_BFLOAT16, NCAST_MAX, 2, Operation::reduce) == "none");
}

TEST_CASE("a selector chooses between the plans that suit a call") {
  Host host;
  const CallShape shape = host.call(Operation::all_gather, 1000000);
  int answer = Selected::built_in;
  std::vector<std::string> offered;
  host.decider.set_selector([&](const CallShape& asked, std::span<const PlanCandidate* const> plans) {
    CHECK(asked == shape);
    offered.clear();
    for (const PlanCandidate* const plan : plans) offered.push_back(plan->plan);
    return answer;
  });
  CHECK(host.plan_of(shape) == "all_pairs");
  CHECK(offered == std::vector<std::string>{"ring", "halving_doubling", "one_shot"});
  const auto choose = [&](int next) {
    answer = next;
    host.decider.add_plan(added("another", Operation::broadcast));  // forgets earlier decisions
    return host.plan_of(shape);
  };
  CHECK(choose(2) == "one_shot");
  CHECK(host.decider.decide(shape).plan_reason == std::string("the selector of the communicator chose it"));
  CHECK(choose(Selected::by_cost) == "ring");
  CHECK(choose(3) == "all_pairs");  // out of range
  host.decider.set_selector({});
  CHECK(host.plan_of(shape) == "ring");
}

}  // namespace
}  // namespace narrowcast::select
