// Words and values of the script language.
#include <cstdlib>
#include <sstream>

#include "nccl/abi.h"
#include "script.h"

namespace fake {
namespace {

constexpr DataType kDataTypes[] = {
    {"int8", "ncclInt8", 1},         {"uint8", "Unknown", 1},         {"int32", "ncclInt32", 4},
    {"uint32", "ncclUint32", 4},     {"int64", "ncclInt64", 8},       {"uint64", "ncclUint64", 8},
    {"float16", "ncclFloat16", 2},   {"float32", "ncclFloat32", 4},   {"float64", "ncclFloat64", 8},
    {"bfloat16", "ncclBfloat16", 2}, {"float8e4m3", "ncclFloat8e4m3", 1}, {"float8e5m2", "ncclFloat8e5m2", 1},
};

template <class T>
bool choose(const std::string& value, T* out, std::initializer_list<std::pair<const char*, T>> choices) {
  for (const auto& [word, meaning] : choices)
    if (value == word) {
      *out = meaning;
      return true;
    }
  return false;
}

bool parse_stuck(const std::string& text, std::initializer_list<int> states, Stuck* out) {
  const size_t at = text.find('@');
  int64_t state = 0, step = 0;
  if (!parse_number(text.substr(0, at), &state)) return false;
  if (at != std::string::npos && !parse_number(text.substr(at + 1), &step)) return false;
  *out = {static_cast<int>(state), static_cast<int>(step)};
  for (int known : states)
    if (known == state) return true;
  return false;
}

bool parse_peer(const std::string& text, Op* op) {
  int64_t peer = 0;
  op->is_peer_relative = text[0] == '+' || text[0] == '-';
  if (!parse_number(text[0] == '+' ? text.substr(1) : text, &peer)) return false;
  op->peer = static_cast<int>(peer);
  return true;
}

bool parse_channels(const std::string& text, uint64_t* out) {
  std::vector<int> channels;
  if (!parse_set(text, ci::nccl::kMaxChannels, &channels)) return false;
  *out = 0;
  for (int channel : channels) *out |= uint64_t{1} << channel;
  return true;
}

template <class T>
bool parse_into(const std::string& value, T* out) {
  int64_t number = 0;
  if (!parse_number(value, &number) || number < 0) return false;
  *out = static_cast<T>(number);
  return true;
}

bool set_kernel(const std::string& value, Op* op) {
  if (value == "never") return op->never_starts = true;
  return parse_time_ns(value, &op->start_delay_ns);
}

bool set_trouble(const std::string& key, const std::string& value, Op* op, bool* is_known) {
  if (key == "kernel") return set_kernel(value, op);
  if (key == "dead") return parse_channels(value, &op->dead);
  if (key == "send_stuck") return parse_stuck(value, {8, 9, 20}, &op->send_stuck);
  if (key == "recv_stuck") return parse_stuck(value, {10, 11, 12}, &op->recv_stuck);
  const bool is_blocked = value == "blocked";
  if (key == "launch") return op->blocked = Blocked::kLaunch, is_blocked;
  if (key == "connect") return op->blocked = Blocked::kConnect, is_blocked;
  if (key == "api") return op->blocked = Blocked::kApi, is_blocked;
  *is_known = false;
  return false;
}

bool set_shape(const std::string& key, const std::string& value, Op* op, bool* is_known) {
  if (key == "via")
    return choose<Via>(value, &op->via, {{"kernel", Via::kKernel}, {"none", Via::kNone}, {"ce", Via::kCe},
                                         {"symmetric", Via::kSymmetric}});
  if (key == "children")
    return choose<Children>(value, &op->children, {{"natural", Children::kNatural}, {"before", Children::kBefore},
                                                   {"after", Children::kAfter}, {"late", Children::kLate}});
  if (key == "stamps")
    return choose<Stamps>(value, &op->stamps, {{"good", Stamps::kGood}, {"zero", Stamps::kZero},
                                               {"reversed", Stamps::kReversed}, {"lagging", Stamps::kLagging},
                                               {"same", Stamps::kSame}, {"nostart", Stamps::kNoStart}});
  if (key == "order") return op->is_stop_first = value == "stop_first";
  if (key == "nchannels") return parse_into(value, &op->stated_channels);
  if (key == "net") return parse_into(value, &op->n_transfers);
  if (key == "credit") return parse_into(value, &op->n_credits);
  return set_trouble(key, value, op, is_known);
}

bool set_value(const std::string& key, const std::string& value, Op* op, bool* is_known) {
  if (value.empty()) return false;
  if (key == "count") return parse_into(value, &op->count);
  if (key == "dtype") return (op->dtype = data_type(value)) != nullptr;
  if (key == "root") return parse_into(value, &op->root);
  if (key == "to" || key == "from") return parse_peer(value, op);
  if (key == "stream") return parse_into(value, &op->stream);
  if (key == "channels") return parse_channels(value, &op->channels);
  if (key == "algo") return op->algo = value, true;
  if (key == "proto") return op->proto = value, true;
  if (key == "tag") return parse_into(value, &op->tag);
  if (key == "duration") return parse_time_ns(value, &op->duration_ns);
  return set_shape(key, value, op, is_known);
}

}  // namespace

bool parse_number(const std::string& text, int64_t* out) {
  char* end = nullptr;
  if (text.empty()) return false;
  *out = strtoll(text.c_str(), &end, 0);
  const std::string suffix = end;
  if (suffix == "k") *out <<= 10;
  if (suffix == "M") *out <<= 20;
  return end != text.c_str() && (suffix.empty() || suffix == "k" || suffix == "M");
}

bool parse_time_ns(const std::string& text, int64_t* out) {
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  double unit = 0;
  if (end == text.c_str() || value < 0) return false;
  if (!choose<double>(end, &unit, {{"", 1e3}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}})) return false;
  *out = static_cast<int64_t>(value * unit);
  return true;
}

bool parse_set(const std::string& text, int limit, std::vector<int>* out) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    int64_t first = 0, last = 0;
    if (!parse_number(part.substr(0, dash), &first)) return false;
    last = first;
    if (dash != std::string::npos && !parse_number(part.substr(dash + 1), &last)) return false;
    if (first < 0 || last < first || last >= limit) return false;
    for (int64_t i = first; i <= last; i++) out->push_back(static_cast<int>(i));
  }
  return !out->empty();
}

bool parse_mask(const std::string& text, int64_t* out) {
  using namespace ci::nccl;
  if (choose<int64_t>(text, out, {{"api", kMaskApi}, {"light", kMaskLight}, {"net", kMaskNet}, {"deep", kMaskDeep},
                                  {"light_v4", kMaskLightV4}, {"none", 0}}))
    return true;
  return parse_number(text, out);
}

const DataType* data_type(const std::string& word) {
  for (const DataType& type : kDataTypes)
    if (word == type.word) return &type;
  return nullptr;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

std::string set_option(const std::string& key, const std::string& value, Op* op) {
  bool is_known = true;
  if (set_value(key, value, op, &is_known)) return "";
  return is_known ? "'" + value + "' is no value of " + key : "there is no option '" + key + "'";
}

bool is_collective(Func func) { return func <= Func::kReduce; }

const char* func_name(Func func) {
  static const char* const kNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                                       "Send",      "Recv",      "AlltoAll",      "Gather",    "Scatter"};
  return kNames[static_cast<int>(func)];
}

}  // namespace fake
