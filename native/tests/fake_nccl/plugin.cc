#include "plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl/abi_v4.h"
#include "nccl/abi_v5.h"
#include "nccl/abi_v6.h"
#include "nccl/abi_v7.h"

namespace fake {
using namespace ci::nccl;
namespace {

constexpr int kWarning = 2;
constexpr uint64_t kCeBits = kCeColl | kCeSync | kCeBatch;
constexpr uint64_t kApiBits = kGroupApi | kCollApi | kP2pApi | kKernelLaunch;

__attribute__((format(printf, 5, 6))) void logger(int level, unsigned long, const char*, int, const char* format, ...) {
  static const char* const debug = getenv("NCCL_DEBUG");
  if (level > kWarning && (debug == nullptr || strcmp(debug, "INFO") != 0)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "fake_nccl NCCL %s %s\n", level > kWarning ? "INFO" : "WARN", text);
}

template <class D>
void fill_coll(D* d, const Event& e) {
  d->coll.seq_number = e.seq;
  d->coll.func = e.func;
  d->coll.send_buff = reinterpret_cast<void*>(0x7000);
  d->coll.recv_buff = reinterpret_cast<void*>(0x8000);
  d->coll.count = e.count;
  d->coll.root = e.root;
  d->coll.datatype = e.datatype;
  d->coll.n_channels = e.n_channels;
  d->coll.n_warps = 16;
  d->coll.algo = e.algo;
  d->coll.proto = e.proto;
}

template <class D>
void fill_p2p(D* d, const Event& e, bool has_channels) {
  d->p2p.func = e.func;
  d->p2p.buff = reinterpret_cast<void*>(0x7000);
  d->p2p.datatype = e.datatype;
  d->p2p.count = e.count;
  d->p2p.peer = e.peer;
  if (has_channels) d->p2p.n_channels = e.n_channels;
}

// Members that no version has moved.
template <class D>
void fill_common(D* d, const Event& e) {
  if (e.type == kProxyOp)
    d->proxy_op = {e.pid, e.channel, e.peer, e.n_steps, e.chunk_bytes, e.is_send};
  else if (e.type == kProxyStep)
    d->proxy_step.step = e.step;
  else if (e.type == kKernelCh)
    d->kernel_ch = {e.channel, e.gpu_ns};
  else if (e.type == kNetPlugin)
    d->net_plugin = {e.net_id, e.net_data};
}

template <class D>
void fill_api(D* d, const Event& e) {
  if (e.type == kGroupApi) {
    d->group_api.is_captured = e.is_captured;
    d->group_api.depth = e.depth;
  } else if (e.type == kCollApi) {
    d->coll_api.func = e.func;
    d->coll_api.count = e.count;
    d->coll_api.datatype = e.datatype;
    d->coll_api.root = e.root;
    d->coll_api.stream = e.stream;
    d->coll_api.is_captured = e.is_captured;
  } else if (e.type == kP2pApi) {
    d->p2p_api.func = e.func;
    d->p2p_api.count = e.count;
    d->p2p_api.datatype = e.datatype;
    d->p2p_api.stream = e.stream;
    d->p2p_api.is_captured = e.is_captured;
  } else if (e.type == kKernelLaunch) {
    d->kernel_launch.stream = e.stream;
  }
}

template <class D>
void fill_ce(D* d, const Event& e) {
  if (e.type == kCeColl) {
    d->ce_coll.seq_number = e.seq;
    d->ce_coll.func = e.func;
    d->ce_coll.count = e.count;
    d->ce_coll.root = e.root;
    d->ce_coll.datatype = e.datatype;
    d->ce_coll.sync_strategy = "UC";
    d->ce_coll.ce_seq = e.ce_seq;
    d->ce_coll.stream = e.stream;
  } else if (e.type == kCeSync) {
    d->ce_sync = {e.step != 0, e.peer};
  } else if (e.type == kCeBatch) {
    d->ce_batch = {e.peer, e.count, false};
  }
}

// The union's unused bytes hold what was on the stack before, as in NCCL.
template <class D>
D described(const Event& e, bool is_copied_by_shim) {
  D d;
  memset(static_cast<void*>(&d), 0xA5, sizeof d);
  d.type = static_cast<decltype(d.type)>(e.type);
  d.parent = e.parent;
  d.rank = e.rank;
  if (e.type == kColl) fill_coll(&d, e);
  if (e.type == kP2p) fill_p2p(&d, e, !is_copied_by_shim);
  fill_common(&d, e);
  return d;
}

DescriptorV4 describe_v4(const Event& e, bool is_shimmed) {
  Event seen = e;
  if (is_shimmed && (e.type == kColl || e.type == kP2p)) seen.parent = e.parent_group;
  return described<DescriptorV4>(seen, is_shimmed);
}

template <class D>
D describe_v5(const Event& e) {
  D d = described<D>(e, false);
  fill_api(&d, e);
  if (e.type == kColl) d.coll.parent_group = e.parent_group;
  if (e.type == kP2p) d.p2p.parent_group = e.parent_group;
  return d;
}

template <class D>
D describe_v6(const Event& e) {
  D d = describe_v5<D>(e);
  fill_ce(&d, e);
  return d;
}

DescriptorV7 describe_v7(const Event& e) {
  auto d = describe_v6<DescriptorV7>(e);
  if (e.type == kColl) {
    d.coll.kernel_variant = e.kernel_variant;
    d.coll.is_symmetric = e.is_symmetric;
    d.coll.user_tag = e.user_tag;
  } else if (e.type == kP2p) {
    d.p2p.user_tag = e.user_tag;
  } else if (e.type == kCollApi) {
    d.coll_api.user_tag = e.user_tag;
  } else if (e.type == kP2pApi) {
    d.p2p_api.user_tag = e.user_tag;
  } else if (e.type == kCeColl) {
    d.ce_coll.user_tag = e.user_tag;
  } else if (e.type == kKernelPhase) {
    d.kernel_phase = {e.channel, e.phase, e.phase_name, e.gpu_ns};
  }
  return d;
}

template <class Table, class D>
Result started(void* table, void* context, void** handle, D descriptor) {
  return static_cast<Table*>(table)->start_event(context, handle, &descriptor);
}

int bit_of(uint64_t type) {
  for (int bit = 0; bit < kEventTypes - 1; bit++)
    if (type == uint64_t{1} << bit) return bit;
  return kEventTypes - 1;
}

std::string path_of(void* library) {
  link_map* map = nullptr;
  char real[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return realpath(map->l_name, real) != nullptr ? real : map->l_name;
}

}  // namespace

int64_t mono_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

const char* event_name(int bit) {
  static const char* const kNames[kEventTypes] = {
      "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",  "GroupApi",
      "CollApi",  "P2pApi",  "KernelLaunch", "CeColl", "CeSync",    "CeBatch",   "KernelPhase", "unknown"};
  return kNames[bit];
}

bool Plugin::acquire() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (library_ == nullptr && (has_failed_ || !load())) {
    has_failed_ = true;  // remembered for the whole process, as NCCL does
    return false;
  }
  n_users_++;
  return true;
}

bool Plugin::load() {
  const Attempts attempts = plugin_attempts(release_, getenv("NCCL_PROFILER_PLUGIN"));
  for (const std::string& name : attempts.names) {
    void* library = dlopen(name.empty() ? nullptr : name.c_str(), RTLD_NOW | RTLD_LOCAL);
    attempts_.push_back({name, library != nullptr ? path_of(library) : "", library != nullptr ? "" : dlerror()});
    if (library == nullptr) continue;
    library_ = library;
    if (find_table(library)) return true;
    attempts_.back().error = "it exports no profiler table that this release knows";
    dlclose(library);
    library_ = nullptr;
    return false;  // the name was found: no other is tried
  }
  return false;
}

bool Plugin::find_table(void* library) {
  for (int version = release_.at_most; version >= 4; version--) {
    const std::string symbol = "ncclProfiler_v" + std::to_string(version);
    symbols_.push_back(symbol);
    table_ = dlsym(library, symbol.c_str());
    if (table_ == nullptr) continue;
    version_ = version;
    is_usable_ = !is_shimmed();
    return true;
  }
  return false;
}

void Plugin::release() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (n_users_ == 0 || --n_users_ > 0) return;
  dlclose(library_);
  library_ = table_ = nullptr;
  version_ = 0;
  is_usable_ = false;
}

Result Plugin::init(void** context, const char* name, uint64_t hash, int n_nodes, int n_ranks, int rank) {
  Result result = kSuccess;
  if (is_off_) return result;
  if (version_ == 4)
    result = static_cast<TableV4*>(table_)->init(context, &mask_, name, hash, n_nodes, n_ranks, rank, logger);
  else
    result = static_cast<TableV5*>(table_)->init(context, hash, &mask_, name, n_nodes, n_ranks, rank, logger);
  if (version_ == 5 && release_.is_ce_capable())
    __atomic_fetch_and(&mask_, ~static_cast<int>(kCeBits), __ATOMIC_RELAXED);
  if (result == kSuccess) {
    __atomic_store_n(&is_usable_, true, __ATOMIC_RELEASE);
    return result;
  }
  calls_.init_errors++;
  if (release_.minor == 27) is_off_ = true;
  return result;
}

bool Plugin::is_dropped(const Event& event, void** handle) const {
  if (!is_shimmed()) return false;
  if (version_ == 4 && (event.type & (kApiBits | kCeBits | kKernelPhase)) != 0) return true;
  if (version_ == 5 && (event.type & kCeBits) != 0) return *handle = nullptr, true;
  return version_ < 7 && event.type == kKernelPhase;
}

void Plugin::start(void* context, void** handle, const Event& event) {
  if (is_off_ || !__atomic_load_n(&is_usable_, __ATOMIC_ACQUIRE) || is_dropped(event, handle)) return;
  calls_.started[bit_of(event.type)]++;
  if (is_poisoning_) *handle = poison();
  Result result = kSuccess;
  if (version_ == 4) result = started<TableV4>(table_, context, handle, describe_v4(event, is_shimmed()));
  if (version_ == 5) result = started<TableV5>(table_, context, handle, describe_v5<DescriptorV5>(event));
  if (version_ == 6) result = started<TableV6>(table_, context, handle, describe_v6<DescriptorV6>(event));
  if (version_ == 7) result = started<TableV7>(table_, context, handle, describe_v7(event));
  if (result != kSuccess) calls_.nonzero++;
  if (*handle == poison()) calls_.unwritten++;
}

// stop_event, record_state and finalize stand at the same place of every table.
void Plugin::stop(void* handle) {
  if (is_off_ || !__atomic_load_n(&is_usable_, __ATOMIC_ACQUIRE)) return;
  calls_.stops++;
  if (static_cast<TableV5*>(table_)->stop_event(handle) != kSuccess) calls_.nonzero++;
}

void Plugin::state(void* handle, int32_t state, const StateArgs& args) {
  if (is_off_ || !__atomic_load_n(&is_usable_, __ATOMIC_ACQUIRE)) return;
  calls_.states++;
  StateArgs copy = args;
  if (static_cast<TableV5*>(table_)->record_state(handle, state, &copy) != kSuccess) calls_.nonzero++;
}

void Plugin::group_state(void* handle, int32_t state) {
  if (is_off_ || !__atomic_load_n(&is_usable_, __ATOMIC_ACQUIRE) || version_ == 4) return;
  calls_.states++;
  StateArgs unset;
  unset.trans_bytes = 0xA5A5A5A5A5A5A5A5;
  StateArgs* args = version_ == 5 && is_shimmed() ? &unset : nullptr;
  if (static_cast<TableV5*>(table_)->record_state(handle, state, args) != kSuccess) calls_.nonzero++;
}

void Plugin::finalize(void* context) {
  if (is_off_ || (context == nullptr && release_.minor >= 28)) return;
  if (static_cast<TableV5*>(table_)->finalize(context) != kSuccess) calls_.nonzero++;
}

const char* Plugin::plugin_name() const { return table_ == nullptr ? "" : *static_cast<const char**>(table_); }
void* Plugin::exported(const char* name) const { return library_ == nullptr ? nullptr : dlsym(library_, name); }

}  // namespace fake
