// Compiles a plan: compile_plan LIBNARROWCAST PLAN FOLDER [LIBRARY...]. Loads the other libraries first.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "narrowcast/plan.h"
#include "narrowcast/types.h"

int main(int count, char** arguments) {
  static char text[1 << 20];
  FILE* const file = fopen(arguments[2], "r");
  const size_t bytes = file != NULL ? fread(text, 1, sizeof text, file) : 0;
  for (int i = 4; i < count; ++i)
    if (dlopen(arguments[i], RTLD_NOW) == NULL) return 2;
  void* const library = dlopen(arguments[1], RTLD_NOW);
  if (library == NULL) return 2;
#define FUNCTION(name) __typeof__(&name) const own_##name = (__typeof__(&name))dlsym(library, #name)
  FUNCTION(ncast_plan_read);
  FUNCTION(ncast_plan_compile);
  FUNCTION(ncast_last_error);
  ncast_plan* plan = NULL;
  if (own_ncast_plan_read(text, bytes, &plan) != NCAST_OK ||
      own_ncast_plan_compile(plan, NCAST_BFLOAT16, NCAST_SUM, 90, arguments[3], NULL) != NCAST_OK) {
    fprintf(stderr, "%s\n", own_ncast_last_error());
    return 1;
  }
  return 0;
}
