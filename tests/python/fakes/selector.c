// Code of a program under the drop-in that chooses plans: all-reduces run "my two shot".
#include <string.h>

#include "narrowcast/plan.h"

static int count;

static int choose(void* context, const ncast_plan_call* call, const char* const* plans, int plan_count) {
  ++*(int*)context;
  for (int i = 0; i < plan_count && call->operation == NCAST_OP_ALL_REDUCE; ++i)
    if (strcmp(plans[i], "my two shot") == 0) return i;
  return NCAST_PLAN_BY_COST;
}

void set_selector(void) { ncast_set_plan_selector(choose, &count); }
int calls(void) { return count; }
