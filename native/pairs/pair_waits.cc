// Row sweep. Seen from one rank p, the waits of every pair begin (p waits) or end (p is waited for) at p's
// own starts: walking these in order meets the intervals of each pair sorted, so that one running edge per
// partner gives the exact union, and no pair is ever stored. A pair is swept from its smaller rank only.
#include "pairs/pair_waits.h"

#include <stdlib.h>
#include <string.h>

namespace {

constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr int64_t kMaxSpan = int64_t{1} << 62;

struct Member {  // of an instance; these stand in order of (instance, rank)
  int64_t start_ns;
  int64_t rank;
};

struct Entry {  // of a rank: its member, and one past the last member of the same instance
  uint32_t member;
  uint32_t end;
};

// Memory that is given back at the end of the scope; null where there is none.
template <class T>
class Array {
 public:
  explicit Array(int64_t n) : items_(static_cast<T*>(calloc(static_cast<size_t>(n > 0 ? n : 1), sizeof(T)))) {}
  ~Array() { free(items_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T& operator[](int64_t i) { return items_[i]; }
  T* data() { return items_; }
  bool is_null() const { return items_ == nullptr; }

 private:
  T* items_;
};

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

struct Rows {
  int64_t n;
  const int64_t* rank;
  const int64_t* instance;
  const int64_t* start_ns;
  int64_t n_ranks;
  int64_t n_instances;

  bool are_in_range() const {
    if (n < 0 || n >= kMaxRows || n_ranks < 1 || n_ranks >= kMaxRows || n_instances < 0) return false;
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
      if (rank[i] < 0 || rank[i] >= n_ranks || instance[i] < 0 || instance[i] >= n_instances) return false;
      first_ns = min(first_ns, start_ns[i]);
      last_ns = max(last_ns, start_ns[i]);
    }
    // sums over all partners must not overflow
    int64_t span_ns;
    return n == 0 || (!__builtin_sub_overflow(last_ns, first_ns, &span_ns) && span_ns < kMaxSpan / (2 * n_ranks));
  }
};

// Counts become begins; the last element is the number of all.
void begins_of_counts(int64_t* counts, int64_t n) {
  int64_t begin = 0;
  for (int64_t i = 0; i <= n; i++) {
    const int64_t count = counts[i];
    counts[i] = begin;
    begin += count;
  }
}

int by_start(const void* a, const void* b, void* members) {
  const Member* of = static_cast<const Member*>(members);
  const int64_t first = of[static_cast<const Entry*>(a)->member].start_ns;
  const int64_t second = of[static_cast<const Entry*>(b)->member].start_ns;
  return (first > second) - (first < second);
}

class Sweep {
 public:
  explicit Sweep(const Rows& rows)
      : rows_(rows), members_(rows.n), entries_(rows.n), entry_begin_(rows.n_ranks + 1), net_ns_(rows.n_ranks),
        edge_ns_(rows.n_ranks) {}

  bool prepare();
  void run(int64_t* caused_ns, int64_t* n_pairs);

 private:
  bool fill_members(Array<uint32_t>& end_of_row, Array<uint32_t>& member_of_row);
  void fill_entries(Array<uint32_t>& end_of_row, Array<uint32_t>& member_of_row);
  void sort_entries(int64_t rank);
  void add_own_waits(const Entry* first, const Entry* last);
  void add_caused_waits(const Entry* first, const Entry* last);

  const Rows& rows_;
  Array<Member> members_;
  Array<Entry> entries_;
  Array<int64_t> entry_begin_;  // of each rank
  Array<int64_t> net_ns_;       // of the pairs of one rank: what it caused less what it waited
  Array<int64_t> edge_ns_;      // of the pairs of one rank: how far they are united
};

bool Sweep::prepare() {
  if (members_.is_null() || entries_.is_null() || entry_begin_.is_null() || net_ns_.is_null() || edge_ns_.is_null())
    return false;
  Array<uint32_t> end_of_row(rows_.n), member_of_row(rows_.n);
  if (end_of_row.is_null() || member_of_row.is_null()) return false;
  if (!fill_members(end_of_row, member_of_row)) return false;
  fill_entries(end_of_row, member_of_row);
  for (int64_t rank = 0; rank < rows_.n_ranks; rank++) sort_entries(rank);
  return true;
}

// Two counting sorts, by rank and then by instance; the second keeps the order of the first.
bool Sweep::fill_members(Array<uint32_t>& end_of_row, Array<uint32_t>& member_of_row) {
  Array<int64_t> next_of_rank(rows_.n_ranks + 1), next_of_instance(rows_.n_instances + 1);
  Array<uint32_t> row_by_rank(rows_.n);
  if (next_of_rank.is_null() || next_of_instance.is_null() || row_by_rank.is_null()) return false;
  for (int64_t row = 0; row < rows_.n; row++) {
    next_of_rank[rows_.rank[row]]++;
    next_of_instance[rows_.instance[row]]++;
  }
  begins_of_counts(next_of_rank.data(), rows_.n_ranks);
  begins_of_counts(next_of_instance.data(), rows_.n_instances);
  for (int64_t row = 0; row < rows_.n; row++) {
    row_by_rank[next_of_rank[rows_.rank[row]]++] = static_cast<uint32_t>(row);
  }
  for (int64_t i = 0; i < rows_.n; i++) {
    const int64_t row = row_by_rank[i];
    const int64_t member = next_of_instance[rows_.instance[row]]++;
    members_[member] = {rows_.start_ns[row], rows_.rank[row]};
    member_of_row[row] = static_cast<uint32_t>(member);
  }
  for (int64_t row = 0; row < rows_.n; row++) {  // by now it is the end
    end_of_row[row] = static_cast<uint32_t>(next_of_instance[rows_.instance[row]]);
  }
  return true;
}

// Only of members behind whom others of the instance stand: with those before it the pair is theirs.
void Sweep::fill_entries(Array<uint32_t>& end_of_row, Array<uint32_t>& member_of_row) {
  for (int64_t row = 0; row < rows_.n; row++) {
    if (member_of_row[row] + 1 < end_of_row[row]) entry_begin_[rows_.rank[row]]++;
  }
  begins_of_counts(entry_begin_.data(), rows_.n_ranks);
  for (int64_t row = 0; row < rows_.n; row++) {
    if (member_of_row[row] + 1 >= end_of_row[row]) continue;
    entries_[entry_begin_[rows_.rank[row]]++] = {member_of_row[row], end_of_row[row]};
  }
  for (int64_t rank = rows_.n_ranks; rank > 0; rank--) entry_begin_[rank] = entry_begin_[rank - 1];
  entry_begin_[0] = 0;
}

// Rows mostly come in order of (rank, start) already.
void Sweep::sort_entries(int64_t rank) {
  Entry* const first = entries_.data() + entry_begin_[rank];
  Entry* const last = entries_.data() + entry_begin_[rank + 1];
  for (Entry* entry = first; entry + 1 < last; entry++) {
    if (by_start(entry, entry + 1, members_.data()) <= 0) continue;
    qsort_r(first, static_cast<size_t>(last - first), sizeof(Entry), by_start, members_.data());
    return;
  }
}

// The rank waits from its own start to its partner's: begins ascend.
void Sweep::add_own_waits(const Entry* first, const Entry* last) {
  for (const Entry* entry = first; entry < last; entry++) {
    const int64_t own_ns = members_[entry->member].start_ns;
    for (uint32_t i = entry->member + 1; i < entry->end; i++) {
      const Member& other = members_[i];
      int64_t& edge_ns = edge_ns_[other.rank];
      net_ns_[other.rank] -= max(0, other.start_ns - max(own_ns, edge_ns));
      edge_ns = max(edge_ns, other.start_ns);
    }
  }
}

// The partner waits from its own start to the rank's: ends descend.
void Sweep::add_caused_waits(const Entry* first, const Entry* last) {
  for (const Entry* entry = last; entry-- > first;) {
    const int64_t own_ns = members_[entry->member].start_ns;
    for (uint32_t i = entry->member + 1; i < entry->end; i++) {
      const Member& other = members_[i];
      int64_t& edge_ns = edge_ns_[other.rank];
      net_ns_[other.rank] += max(0, min(own_ns, edge_ns) - other.start_ns);
      edge_ns = min(edge_ns, other.start_ns);
    }
  }
}

void Sweep::run(int64_t* caused_ns, int64_t* n_pairs) {
  memset(caused_ns, 0, static_cast<size_t>(rows_.n_ranks) * sizeof(int64_t));
  memset(n_pairs, 0, static_cast<size_t>(rows_.n_ranks) * sizeof(int64_t));
  for (int64_t rank = 0; rank < rows_.n_ranks; rank++) {
    const Entry* const first = entries_.data() + entry_begin_[rank];
    const Entry* const last = entries_.data() + entry_begin_[rank + 1];
    if (first == last) continue;
    for (int64_t other = rank; other < rows_.n_ranks; other++) net_ns_[other] = 0;
    for (int64_t other = rank; other < rows_.n_ranks; other++) edge_ns_[other] = INT64_MIN;
    add_own_waits(first, last);
    for (int64_t other = rank; other < rows_.n_ranks; other++) edge_ns_[other] = INT64_MAX;
    add_caused_waits(first, last);
    for (int64_t other = rank + 1; other < rows_.n_ranks; other++) {
      const int64_t cause = net_ns_[other] > 0 ? rank : other;
      caused_ns[cause] += net_ns_[other] > 0 ? net_ns_[other] : -net_ns_[other];
      n_pairs[cause] += net_ns_[other] != 0;
    }
  }
}

}  // namespace

int32_t ci_pairs_version(void) { return CI_PAIRS_VERSION; }

int32_t ci_pair_waits(int64_t n_rows, const int64_t* rank, const int64_t* instance, const int64_t* start_ns,
                      int64_t n_ranks, int64_t n_instances, int64_t* caused_ns, int64_t* n_pairs) {
  const Rows rows = {n_rows, rank, instance, start_ns, n_ranks, n_instances};
  if (!rows.are_in_range()) return CI_PAIRS_RANGE;
  Sweep sweep(rows);
  if (!sweep.prepare()) return CI_PAIRS_MEMORY;
  sweep.run(caused_ns, n_pairs);
  return CI_PAIRS_OK;
}
