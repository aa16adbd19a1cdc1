// A fake profiler, which NVTX loads by NVTX_INJECTION64_PATH. It writes all events to TEST_FOLDER, one file per
// process. Types and numbers are those of nvtx3/nvtxDetail/nvtxTypes.h.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { export_table_callbacks = 1, module_core2 = 5 };
enum { domain_mark = 1, domain_range_push = 4, domain_range_pop = 5, domain_create = 12 };

typedef void (*Function)(void);
struct Callbacks {
  size_t struct_size;
  int (*get_module_function_table)(int module, Function*** table, unsigned* size);
};

struct Event {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

static FILE* file;

static void* create(const char* name) { return fprintf(file, "domain %s\n", name), fflush(file), file; }
static void mark(void* domain, const struct Event* event) {
  if (domain == file) fprintf(file, "mark %s\n", event->message), fflush(file);
}
static int push(void* domain, const struct Event* event) {
  if (domain == file) fprintf(file, "%s (%lu)\n", event->message, (unsigned long)event->payload), fflush(file);
  return 0;
}
static int pop(void* domain) {
  if (domain == file) fprintf(file, "end\n"), fflush(file);
  return 0;
}

int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const struct Callbacks* callbacks = export_table(export_table_callbacks);
  Function** table = NULL;
  unsigned size = 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.nvtx", getenv("TEST_FOLDER"), (int)getpid());
  file = fopen(path, "w");
  if (file == NULL || !callbacks->get_module_function_table(module_core2, &table, &size) || size <= domain_create)
    return 0;
  *table[domain_mark] = (Function)mark;
  *table[domain_range_push] = (Function)push;
  *table[domain_range_pop] = (Function)pop;
  *table[domain_create] = (Function)create;
  return 1;
}
