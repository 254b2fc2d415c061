#include "device.h"

#include <dlfcn.h>
#include <string.h>

namespace ci::nccl {
namespace {

// A library that is loaded, kept while asked; never loaded by us.
class Loaded {
 public:
  explicit Loaded(const char* name) : library_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Loaded() {
    if (library_ != nullptr) dlclose(library_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  template <class F>
  F function(const char* name) const {
    return library_ != nullptr ? reinterpret_cast<F>(dlsym(library_, name)) : nullptr;
  }

 private:
  void* library_;
};

void ask_driver(DeviceFacts* facts) {
  const Loaded driver("libcuda.so.1");
  const auto current = driver.function<int (*)(int*)>("cuCtxGetDevice");
  const auto bus_id = driver.function<int (*)(char*, int, int)>("cuDeviceGetPCIBusId");
  int device = -1;
  if (current == nullptr || current(&device) != 0 || device < 0) return;
  facts->device_number = static_cast<uint32_t>(device) + 1;
  if (bus_id == nullptr || bus_id(facts->pci_bus_id, sizeof facts->pci_bus_id, device) != 0)
    memset(facts->pci_bus_id, 0, sizeof facts->pci_bus_id);
  facts->pci_bus_id[sizeof facts->pci_bus_id - 1] = 0;
}

uint32_t ask_nccl() {
  const Loaded nccl("libnccl.so.2");  // frameworks load it without making its symbols global
  auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  if (version_of == nullptr) version_of = nccl.function<int (*)(int*)>("ncclGetVersion");
  int version = 0;
  return version_of != nullptr && version_of(&version) == 0 && version > 0 ? static_cast<uint32_t>(version) : 0;
}

}  // namespace

DeviceFacts device_facts() {
  DeviceFacts facts = {};
  ask_driver(&facts);
  facts.nccl_version = ask_nccl();
  return facts;
}

}  // namespace ci::nccl
