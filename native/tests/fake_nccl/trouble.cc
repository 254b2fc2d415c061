// What a plugin meets besides orderly calls: other processes' proxy ops, wrong handles, late calls.
#include <unistd.h>

#include "nccl.h"

namespace fake {
using namespace ci::nccl;
namespace {

void* random_pointer(std::mt19937_64& random) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(random() & 0x7FFFFFFFFFF8u));
}

}  // namespace

void Trouble::bad(const Step& step) {
  if (step.word == "null") return null_calls();
  Comm& comm = *rank_.comm_of(step.comm);
  if (!comm.is_active) return;
  if (step.word == "state") unknown_state(comm);
  if (step.word == "type") unknown_type(comm);
  if (step.word == "stop_twice") stop_twice(comm);
  if (step.word == "stale") stale_parent(comm);
  if (step.word == "parent") wrong_parents(comm);
  if (step.word == "handle") random_handles(comm);
  if (step.word == "late") late_calls(comm);
  if (step.word == "strings") odd_strings(comm);
}

// PXN: context and parent are another process' numbers; the steps come under the handle we were given.
void Trouble::foreign(Comm& comm, const Step& step) {
  if (!comm.is_active) return;
  comm.family->proxy.call([&] {
    for (int channel = 0; channel < kMaxChannels; channel++) {
      if (!(step.op.channels >> channel & 1)) continue;
      Event event;
      event.type = kProxyOp;
      event.parent = random_pointer(rank_.random_);
      event.rank = comm.comm_rank;
      event.pid = getpid() ^ 0x155;
      event.channel = static_cast<uint8_t>(channel);
      event.n_steps = static_cast<int>(step.value);
      event.chunk_bytes = 1 << 19;
      event.is_send = channel % 2 == 0;
      void* handle = nullptr;
      plugin_.start(random_pointer(rank_.random_), &handle, event);
      if (handle != nullptr) plugin_.state(handle, kProxyOpInProgress, StateArgs{0});
      for (int i = 0; i < step.value; i++) {
        Event part;
        part.type = kProxyStep;
        part.parent = handle;
        part.step = i;
        void* step_handle = nullptr;
        plugin_.start(random_pointer(rank_.random_), &step_handle, part);
        if (step_handle == nullptr) continue;
        plugin_.state(step_handle, event.is_send ? kSendWait : kRecvWait, StateArgs{1 << 19});
        plugin_.stop(step_handle);
      }
      if (handle != nullptr) plugin_.stop(handle);
    }
  });
}

void Trouble::proxy_ctrl(Comm& comm) {
  if (!comm.is_active) return;
  comm.family->proxy.call([&] {
    for (const int state : {13, 14, 17, 18, 15, 16}) {
      Event event;
      event.type = kProxyCtrl;
      void* handle = poison();  // a stack variable that NCCL does not set before
      plugin_.start(comm.context, &handle, event);
      StateArgs args;
      args.appended_proxy_ops = 1;
      if (handle == nullptr) continue;
      plugin_.state(handle, state, args);
      plugin_.stop(handle);
    }
  });
}

void Trouble::net_plugin(Comm& comm) {
  if (!comm.is_active) return;
  comm.family->proxy.call([&] {
    void *op = nullptr, *step = nullptr, *net = nullptr;
    Event event;
    event.type = kProxyOp;
    event.pid = getpid();
    event.n_steps = 1;
    event.is_send = true;
    plugin_.start(comm.context, &op, event);
    event.type = kProxyStep;
    event.parent = op;
    plugin_.start(comm.context, &step, event);
    static char work_request[64];
    event.type = kNetPlugin;
    event.parent = step;
    event.net_id = (1 << 16) | 1;
    event.net_data = work_request;
    plugin_.start(comm.context, &net, event);
    StateArgs args;
    args.net_data = work_request;
    plugin_.state(net, kNetPluginUpdate, args);  // no check for NULL: NCCL has none here
    plugin_.stop(net);
    if (step != nullptr) plugin_.stop(step);
    if (op != nullptr) plugin_.stop(op);
  });
}

void Trouble::null_calls() {
  if (!plugin_.is_loaded()) return;
  plugin_.stop(nullptr);
  for (int state = 0; state < 40; state++) plugin_.state(nullptr, state, StateArgs{0});
  plugin_.group_state(nullptr, kGroupEndApiStart);
  for (int bit = 0; bit < 16; bit++) {
    Event event;
    event.type = uint64_t{1} << bit;
    event.func = event.datatype = event.algo = event.proto = "";
    event.pid = getpid();
    void* handle = nullptr;
    plugin_.start(nullptr, &handle, event);
    if (handle != nullptr) plugin_.stop(handle);
  }
}

void* Trouble::coll(Comm& comm, void* parent, const char* func, const char* text) {
  Event event;
  event.type = kColl;
  event.parent = event.parent_group = parent;
  event.rank = comm.comm_rank;
  event.seq = 1000000;
  event.func = func;
  event.datatype = event.algo = event.proto = text;
  event.count = 16;
  event.n_channels = 1;
  void* handle = nullptr;
  plugin_.start(comm.context, &handle, event);
  return handle;
}

void Trouble::unknown_state(Comm& comm) {
  void* handle = coll(comm, nullptr, "AllReduce", "ncclFloat32");
  for (const int state : {99, -1, 1 << 30}) plugin_.state(handle, state, StateArgs{0});
  if (handle != nullptr) plugin_.stop(handle);
}

void Trouble::unknown_type(Comm& comm) {
  for (const uint64_t type : {uint64_t{1} << 20, uint64_t{0}, uint64_t{3}}) {
    Event event;
    event.type = plugin_.version() == 4 ? type & 0x83 : type;
    void* handle = nullptr;
    plugin_.start(comm.context, &handle, event);
    if (handle == nullptr) continue;
    plugin_.state(handle, 22, StateArgs{0});
    plugin_.stop(handle);
  }
}

void Trouble::stop_twice(Comm& comm) {
  void* handle = coll(comm, nullptr, "AllReduce", "ncclFloat32");
  Event event;
  event.type = kKernelCh;
  event.parent = handle;
  void* kernel = nullptr;
  plugin_.start(comm.context, &kernel, event);
  for (int i = 0; i < 2; i++) {
    plugin_.state(kernel, kKernelChStop, StateArgs{0});
    plugin_.stop(kernel);
    plugin_.stop(handle);
  }
}

void Trouble::stale_parent(Comm& comm) {
  void* parent = coll(comm, nullptr, "AllReduce", "ncclFloat32");
  plugin_.stop(parent);
  for (int i = 0; i < 2; i++) {  // the second time its op is over
    Event event;
    event.type = kKernelCh;
    event.parent = parent;
    void* kernel = nullptr;
    plugin_.start(comm.context, &kernel, event);
    plugin_.state(kernel, kKernelChStop, StateArgs{0});
    plugin_.stop(kernel);
    event.type = kProxyOp;
    event.pid = getpid();
    void* proxy = nullptr;
    plugin_.start(comm.context, &proxy, event);
    plugin_.stop(proxy);
  }
}

void Trouble::wrong_parents(Comm& comm) {
  for (void* parent : {static_cast<void*>(nullptr), random_pointer(rank_.random_), poison()}) {
    for (const uint64_t type : {kKernelCh, kProxyStep, kKernelPhase}) {
      Event event;
      event.type = type;
      event.parent = parent;
      event.phase_name = "compute";
      void* handle = nullptr;
      if (plugin_.version() == 4 && type == kKernelPhase) continue;
      plugin_.start(comm.context, &handle, event);
      if (handle != nullptr) plugin_.stop(handle);
    }
    void* handle = coll(comm, parent, "AllReduce", "ncclFloat32");
    if (handle != nullptr) plugin_.stop(handle);
  }
}

void Trouble::random_handles(Comm&) {
  for (int i = 0; i < 1000; i++) {
    void* handle = reinterpret_cast<void*>(static_cast<uintptr_t>(rank_.random_()));
    plugin_.state(handle, static_cast<int32_t>(rank_.random_() % 40), StateArgs{0});
    plugin_.stop(handle);
  }
}

// A profiler thread of 2.31 can come after the finalize of its communicator.
void Trouble::late_calls(Comm& comm) {
  void* handle = coll(comm, nullptr, "AllReduce", "ncclFloat32");
  void* context = comm.context;
  plugin_.acquire();  // the library stays
  rank_.finalize(comm, true);
  Event event;
  event.type = kKernelCh;
  event.parent = handle;
  void* kernel = nullptr;
  plugin_.start(context, &kernel, event);
  plugin_.state(kernel, kKernelChStop, StateArgs{0});
  plugin_.stop(kernel);
  plugin_.stop(handle);
  plugin_.release();
}

void Trouble::odd_strings(Comm& comm) {
  for (const char* text : {"Nobody", "", static_cast<const char*>(nullptr)}) {
    void* handle = coll(comm, nullptr, text, text);
    Event event;
    event.type = kKernelCh;
    event.parent = handle;
    void* kernel = nullptr;
    plugin_.start(comm.context, &kernel, event);
    plugin_.state(kernel, kKernelChStop, StateArgs{0});
    plugin_.stop(kernel);
    if (handle != nullptr) plugin_.stop(handle);
  }
}

}  // namespace fake
