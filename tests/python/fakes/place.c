// Preloaded after the drop-in: makes the process appear to run elsewhere. TEST_PLACE names what differs: boot_id, or a
// namespace.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_elsewhere(const char* path, const char* folder) {
  const char* const place = getenv("TEST_PLACE");
  const size_t bytes = strlen(folder);
  return place != NULL && strncmp(path, folder, bytes) == 0 && strcmp(path + bytes, place) == 0;
}

ssize_t readlink(const char* path, char* target, size_t bytes) {
  static const char elsewhere[] = "elsewhere";
  if (is_elsewhere(path, "/proc/self/ns/") && bytes >= sizeof elsewhere) {
    memcpy(target, elsewhere, sizeof elsewhere);
    return sizeof elsewhere - 1;
  }
  return ((ssize_t (*)(const char*, char*, size_t))dlsym(RTLD_NEXT, "readlink"))(path, target, bytes);
}

FILE* fopen64(const char* path, const char* mode) {
  const char* const there = is_elsewhere(path, "/proc/sys/kernel/random/") ? "/proc/version" : path;
  return ((FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen64"))(there, mode);
}
