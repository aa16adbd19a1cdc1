// A fake of the drop-in for tests of `narrowcast run`: a process that preloads it reports the communicators in
// NARROWCAST_TEST_COMMUNICATORS at its end and, with NARROWCAST_STATS_SECONDS, at its start.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void report(void) {
  const char* pattern = getenv("NARROWCAST_STATS");
  const char* communicators = getenv("NARROWCAST_TEST_COMMUNICATORS");
  const char* number = pattern != NULL ? strstr(pattern, "%p") : NULL;
  if (number == NULL || communicators == NULL) return;
  char path[4096];
  snprintf(path, sizeof path, "%.*s%d%s", (int)(number - pattern), pattern, (int)getpid(), number + 2);
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "{\"pid\": %d, \"nccl\": {\"path\": \"%s\", \"version\": 22809}, \"communicators\": %s}", (int)getpid(),
          getenv("NARROWCAST_NCCL_LIBRARY"), communicators);
  fclose(file);
}

size_t narrowcast_nccl_check_policy(const char* path, char* text, size_t capacity) {
  (void)path;
  return 1 + (size_t)snprintf(text, capacity, "{\"faults\": []}");
}

int ncclGetVersion(int* version) { return *version = 22809, 0; }

__attribute__((constructor)) static void begin(void) {
  if (getenv("NARROWCAST_STATS_SECONDS") != NULL) report();
}

__attribute__((destructor)) static void end(void) { report(); }
