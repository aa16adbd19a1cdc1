// A fake of libnvidia-ml.so.1: GPUs at the PCI addresses of the fake driver, all connected by NVLink.
#include <stddef.h>
#include <stdio.h>

enum { ok = 0, not_supported = 3, not_found = 6 };

int nvmlInit_v2(void) { return ok; }
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) { return snprintf(text, bytes, "580.0"), ok; }

// A handle is the bus number.
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  unsigned bus;
  if (sscanf(address, "0000:%x:00.0", &bus) != 1) return not_found;
  *handle = (void*)(size_t)bus;
  return ok;
}

int nvmlDeviceGetNvLinkState(void* handle, unsigned link, int* active) {
  (void)handle;
  *active = link < 6;
  return link < 8 ? ok : not_supported;
}

int nvmlDeviceGetP2PStatus(void* one, void* other, int by, int* status) {
  const int nvlink = 2, denied = 5;
  *status = one != other && by == nvlink ? ok : denied;
  return ok;
}

int nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, int* level) {
  (void)one, (void)other;
  *level = 50;
  return ok;
}
