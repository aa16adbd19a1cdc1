// The choice between plans. No GPU is needed.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

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
    "all_gather 4 shm plan:halving_doubling 1000:20 1000000:60\n"
    "all_gather 4 shm plan:one_shot 1000:20 1000000:70\n"
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

TEST_CASE("the fastest plan runs where it was measured to be faster than the built-in way by 3%") {
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
  CHECK(Host().decider.chooses_plans());
  CHECK(decider.decide(decider.shape_of(Operation::all_reduce, NCAST_INT32, NCAST_CODEC_AUTO, 1000)).chosen == nullptr);
}

TEST_CASE("a plan that rounds differently runs only for types that do not round") {
  Host host;
  const auto plan_of = [&](ncast_dtype dtype) {
    return host.plan_of(host.call(Operation::all_reduce, 1000000, dtype));
  };
  for (const ncast_dtype dtype : {NCAST_INT8, NCAST_UINT8, NCAST_INT32, NCAST_UINT32, NCAST_INT64, NCAST_UINT64})
    CHECK(plan_of(dtype) == "ring");
  for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT32, NCAST_FLOAT64})
    CHECK(plan_of(dtype) == "all_pairs");
  CHECK(host.plan_of(host.call(Operation::all_gather, 1000000, NCAST_FLOAT32)) == "ring");
}

TEST_CASE("the plan of a builder runs with the fastest codec that the call allows") {
  Decider decider({.ranks = 4, .link = Link::shared_memory},
                  parsed(costs + "all_gather 4 shm plan:ring:window 1000:30 1000000:40\n"
                                 "all_gather 4 shm plan:one_shot:int8 1000:1 1000000:1\n"));
  constexpr ncast_codec coarse = NCAST_CODEC_INT8;
  const auto decided = [&](ncast_codec codec, ncast_dtype dtype = NCAST_BFLOAT16) {
    return decider.decide(decider.shape_of(Operation::all_gather, dtype, codec, 1000000));
  };
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_AUTO}, ncast_codec{NCAST_CODEC_WINDOW}}) {
    CHECK(decided(codec).candidate == "plan:ring");
    CHECK(decided(codec).codec == NCAST_CODEC_WINDOW);
    CHECK(decided(codec).predicted.typical == 40);
  }
  CHECK(decided(NCAST_CODEC_AUTO).codec_reason == std::string("the plan is predicted to be fastest with it"));
  CHECK(decided(NCAST_CODEC_RAW).predicted.typical == 50);
  CHECK(decided(NCAST_CODEC_RAW).codec == NCAST_CODEC_RAW);
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_AUTO}, forced_window}) {  // which does not encode integers
    CHECK(decided(codec, NCAST_INT8).candidate == "plan:ring");
    CHECK(decided(codec, NCAST_INT8).codec == NCAST_CODEC_RAW);
  }
  CHECK(decided(coarse).codec == NCAST_CODEC_RAW);  // encoding repeatedly has larger errors than stated
  CHECK(decided(coarse).candidate == "plan:ring");
  CHECK(decided(forced_window).candidate == "frames:window");  // which was not measured
  const Decision forced = decided(coarse | NCAST_CODEC_FORCED);
  CHECK(forced.candidate == "frames:int8");
  CHECK(forced.codec == coarse);
  decider.set_selector([](const auto&, const auto&) { return 2; });
  CHECK(decided(forced_window).candidate == "plan:one_shot");
  CHECK(decided(forced_window).codec == NCAST_CODEC_WINDOW);
}

TEST_CASE("the time of a plan is that of its codec, unless the plan states one") {
  const PlanCandidate& built = *builder_candidates().front();
  CHECK(cost_name_of(built, NCAST_CODEC_RAW) == built.name);
  CHECK(cost_name_of(built, NCAST_CODEC_WINDOW) == built.name + ":window");
  CHECK(cost_name_of(added("mine@1"), NCAST_CODEC_WINDOW) == "plan:mine@1");
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

TEST_CASE("plans of the same name are one alternative: the one that runs, or one that suits the call") {
  Decider decider({.ranks = 4, .link = Link::nvlink}, parsed(costs));
  const auto add_for = [&](std::optional<ncast_dtype> dtype) {
    PlanCandidate plan = added("mine@1", Operation::all_gather);
    plan.dtype = dtype;
    decider.add_plan(plan);
  };
  const auto alternative_of = [&](ncast_dtype dtype) {
    const CallShape shape = decider.shape_of(Operation::all_gather, dtype, NCAST_CODEC_AUTO, 1000);
    const std::vector<Alternative> all = decider.alternatives_of(shape, decider.decide(shape));
    REQUIRE(all.size() == 1);
    return all[0];
  };
  add_for(NCAST_BFLOAT16);
  add_for(NCAST_FLOAT32);
  CHECK(alternative_of(NCAST_BFLOAT16).why_not == nullptr);
  CHECK(alternative_of(NCAST_FLOAT32).why_not == nullptr);
  CHECK(alternative_of(NCAST_INT8).why_not == std::string("it was not prepared for this type"));
  decider.set_selector([](const auto&, const auto&) { return Selected::built_in; });
  CHECK(alternative_of(NCAST_FLOAT32).why_not == std::string("it is not predicted to be faster"));
  add_for(std::nullopt);
  decider.set_selector([](const auto&, const auto& plans) { return static_cast<int>(plans.size()) - 1; });
  CHECK(alternative_of(NCAST_FLOAT32).why_not == nullptr);
  CHECK(!alternative_of(NCAST_FLOAT32).plan->dtype);
}

TEST_CASE("an added plan runs by its time, or always if it was added so") {
  Decider decider({.ranks = 4, .link = Link::nvlink}, parsed(costs));
  const auto candidate_of = [&](uint64_t bytes) {
    const CallShape shape = decider.shape_of(Operation::all_gather, NCAST_FLOAT32, NCAST_CODEC_AUTO, bytes);
    return std::string(decider.decide(shape).candidate);
  };
  CHECK(candidate_of(1000) == "blocks:raw");
  decider.add_plan(added("mine@1", Operation::all_gather));
  CHECK(candidate_of(1000) == "plan:mine@1");  // also if the decision was cached
  PlanCandidate large = added("large", Operation::all_gather);
  large.min_bytes = 5000;
  large.always = true;
  decider.add_plan(large);
  CHECK(candidate_of(4999) == "plan:mine@1");
  CHECK(candidate_of(5000) == "plan:large");
  CHECK(candidate_of(0) == "none");

  PlanCandidate encoded = added("encoded", Operation::all_to_all);
  encoded.ranks = 0;
  encoded.always = true;
  encoded.codec = NCAST_CODEC_WINDOW;
  const auto decision_of = [&](int ranks) {
    Decider of_ranks({.ranks = ranks, .link = Link::nvlink}, {});
    of_ranks.add_plan(encoded);
    return of_ranks.decide(of_ranks.shape_of(Operation::all_to_all, NCAST_INT8, NCAST_CODEC_AUTO, 1 << 20));
  };
  CHECK(decision_of(2).codec == NCAST_CODEC_WINDOW);
  CHECK(decision_of(2).codec_reason == std::string("the plan states the codec of its messages"));
  CHECK(decision_of(2).blocks->codec == NCAST_CODEC_RAW);  // the built-in way has its own
  CHECK(decision_of(1).candidate == "copy");

  Decider forced({.ranks = 4, .link = Link::nvlink, .transport = ForcedTransport::blocks}, parsed(costs));
  forced.add_plan(added("mine@1", Operation::all_gather));
  CHECK(forced.decide(forced.shape_of(Operation::all_gather, NCAST_FLOAT32, NCAST_CODEC_AUTO, 1000)).candidate ==
        "blocks:raw");
}

TEST_CASE("a plan runs only the calls that it was prepared for") {
  const CallShape call{.operation = Operation::reduce,
                       .dtype = NCAST_BFLOAT16,
                       .codec = NCAST_CODEC_AUTO,
                       .bytes = 1000,
                       .ranks = 4,
                       .redop = NCAST_MAX,
                       .root = 2,
                       .placement = Placement::in_place};
  const auto check_reason = [&](auto change, const char* expected) {
    PlanCandidate plan = added("reduction", Operation::reduce);
    change(plan);
    const char* const why = why_not(plan, call) != nullptr ? why_not(plan, call) : why_not_by_cost(plan, call);
    CHECK(std::string(why == nullptr ? "" : why) == expected);
    Decider decider({.ranks = 4, .link = Link::nvlink}, {});
    plan.always = true;
    decider.add_plan(plan);
    const CallShape asked =
        decider.shape_of(call.operation, call.dtype, call.codec, call.bytes, call.redop, call.root, call.placement);
    CHECK((decider.decide(asked).chosen != nullptr) == (why_not(plan, call) == nullptr));
  };
  check_reason([](PlanCandidate&) {}, "");
  check_reason([](PlanCandidate& plan) { plan.ranks = 0; }, "");
  check_reason([](PlanCandidate& plan) { plan.ranks = 8; }, "it is for another number of ranks");
  check_reason([](PlanCandidate& plan) { plan.root = 2; }, "");
  check_reason([](PlanCandidate& plan) { plan.root = 1; }, "it has another root");
  check_reason([](PlanCandidate& plan) { plan.dtype = NCAST_BFLOAT16; }, "");
  check_reason([](PlanCandidate& plan) { plan.dtype = NCAST_FLOAT16; }, "it was not prepared for this type");
  check_reason([](PlanCandidate& plan) { plan.redop = NCAST_MAX; }, "");
  check_reason([](PlanCandidate& plan) { plan.redop = NCAST_SUM; }, "it was not prepared for this reduction");
  check_reason([](PlanCandidate& plan) { plan.placement = Placement::in_place; }, "");
  check_reason([](PlanCandidate& plan) { plan.placement = Placement::separate; }, "it does not work in place");
  check_reason([](PlanCandidate& plan) { plan.min_bytes = 1000; }, "");
  check_reason([](PlanCandidate& plan) { plan.min_bytes = 1001; }, "the call is too short for it");
  check_reason([](PlanCandidate& plan) { plan.max_bytes = 1000; }, "");
  check_reason([](PlanCandidate& plan) { plan.max_bytes = 999; }, "the call is too long for it");
  check_reason([](PlanCandidate& plan) { plan.codec = bounded(); }, "its codec is not exact");
  check_reason([](PlanCandidate& plan) { plan.has_same_results = false; },
               "it rounds sums in another order or more often");

  CallShape asked = call;
  PlanCandidate plan = added("reduction", Operation::reduce);
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_AUTO}, ncast_codec{NCAST_CODEC_WINDOW}}) {
    asked.codec = codec;
    plan.codec = NCAST_CODEC_RAW;
    CHECK(why_not_by_cost(plan, asked) == nullptr);
    plan.codec = NCAST_CODEC_WINDOW;
    CHECK(why_not_by_cost(plan, asked) == nullptr);
  }
  asked.codec = NCAST_CODEC_RAW;
  CHECK(why_not_by_cost(plan, asked) == std::string("the call does not allow its codec"));
  asked.codec = forced_window;
  CHECK(why_not_by_cost(plan, asked) == nullptr);
  plan.codec = NCAST_CODEC_RAW;
  CHECK(why_not_by_cost(plan, asked) == std::string("another codec is forced"));
  asked.codec = bounded() | NCAST_CODEC_FORCED;
  plan.codec.reset();
  CHECK(why_not_by_cost(plan, asked) == std::string("its codec is not exact"));
  asked.result_codec = NCAST_CODEC_INT8;
  CHECK(why_not(plan, asked) == std::string("the results have a codec of their own"));
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
  CHECK(host.decider.shape_of(Operation::reduce, NCAST_INT8, NCAST_CODEC_RAW, 1, NCAST_MAX, 3).root == 3);
  CHECK(offered == std::vector<std::string>{"ring", "halving_doubling", "one_shot"});
  const auto choose = [&](int next) {
    answer = next;
    host.decider.add_plan(added("another", Operation::broadcast));  // forgets earlier decisions
    return host.plan_of(shape);
  };
  CHECK(choose(2) == "one_shot");
  CHECK(host.decider.decide(shape).plan_reason == std::string("the selector of the communicator chose it"));
  CHECK(choose(Selected::by_cost) == "ring");
  CHECK(choose(0) == "ring");
  CHECK(choose(3) == "all_pairs");  // out of range
  host.decider.set_selector({});
  CHECK(host.plan_of(shape) == "ring");
}

TEST_CASE("a decision is cached unless plans were added or removed while it was made") {
  Host host;
  size_t calls = 0;
  host.decider.set_selector([&](const CallShape&, std::span<const PlanCandidate* const> plans) {
    if (calls++ == 0) host.decider.add_plan(added("late", Operation::all_gather));
    return static_cast<int>(plans.size()) - 1;
  });
  const CallShape shape = host.call(Operation::all_gather, 1000000);
  CHECK(host.plan_of(shape) == "one_shot");
  CHECK(host.plan_of(shape) == "late");
  CHECK(host.plan_of(shape) == "late");
  CHECK(calls == 2);
  const Decision before = host.decider.decide(shape);
  host.decider.remove_plan(1);
  host.decider.add_plan(added("another", Operation::broadcast));
  CHECK(host.plan_of(shape) == "one_shot");
  CHECK(before.chosen->plan == "late");  // a call that was decided before can still run it
}

}  // namespace
}  // namespace narrowcast::select
