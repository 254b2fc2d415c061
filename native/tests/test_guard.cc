// The guard against its law: share of a core = time per op x ops per second; down after three windows in a row.
#include "check.h"
#include "nccl/abi.h"
#include "nccl/guard.h"

using namespace ci::nccl;

namespace {

constexpr int64_t kS = 1000000000;

// Plays `seconds` of `ops_per_s` ops at `ns_per_op`, one of kSampledOf sampled; the number of steps down that it told.
struct Player {
  Guard guard = {};
  int64_t now_ns = 5 * kS;
  uint32_t mask = kMaskDeep;
  int64_t n_unsampled = 0;

  int play(int seconds, int64_t ops_per_s, int64_t ns_per_op) {
    int steps = 0;
    for (int tenth = 0; tenth < 10 * seconds; tenth++) {
      n_unsampled += ops_per_s / 10;
      for (; n_unsampled >= kSampledOf; n_unsampled -= kSampledOf) guard.sample(ns_per_op, 36);
      now_ns += kS / 10;
      uint32_t lower = 0;
      if (!guard.round(now_ns, mask, &lower)) continue;
      CHECK(lower != mask);
      mask = lower;
      steps++;
    }
    return steps;
  }
};

void below_the_budget_nothing_happens() {
  Player player;
  CHECK_EQ(player.play(30, 25600, 700), 0);  // 1.8 % of a core
  CHECK_EQ(player.mask, kMaskDeep);
}

void above_it_the_mask_goes_down_to_the_calls_and_stays() {
  Player player;
  CHECK_EQ(player.play(3, 25600, 1000), 0);  // 2.6 %: the first window opens at the first round
  CHECK_EQ(player.play(1, 25600, 1000), 1);
  CHECK_EQ(player.mask, kMaskNet);
  CHECK_EQ(player.play(3, 25600, 1000), 1);
  CHECK_EQ(player.mask, kMaskLight);
  CHECK_EQ(player.play(3, 25600, 1000), 1);
  CHECK_EQ(player.mask, kMaskApi);
  CHECK_EQ(player.play(20, 25600, 1000), 0);
  CHECK_EQ(player.play(20, 25600, 10), 0);  // never up by itself
  CHECK_EQ(player.mask, kMaskApi);
}

void a_quiet_second_starts_the_count_anew() {
  Player player;
  CHECK_EQ(player.play(2, 25600, 1000), 0);
  CHECK_EQ(player.play(1, 0, 0), 0);
  CHECK_EQ(player.play(2, 25600, 1000), 0);
  CHECK_EQ(player.play(2, 25600, 1000), 1);
}

void the_budget_is_the_users() {
  Player none;
  none.guard.set_budget(0);
  CHECK_EQ(none.play(20, 25600, 100000), 0);
  Player wide;
  wide.guard.set_budget(50000);
  CHECK_EQ(wide.play(20, 25600, 1900), 0);  // 4.9 %
  CHECK_EQ(wide.play(4, 25600, 2100), 1);
}

// Each timed callback holds a reading of the clock that ops which are not timed do not pay.
void the_price_of_measuring_is_not_the_price() {
  Player player;
  player.guard.set_clock_ns(25);
  CHECK_EQ(player.play(20, 25600, 1600), 0);  // 36 x 25 = 900 of it
  CHECK_EQ(player.guard.callback_ns(), 700 * 20 * 25600 / kSampledOf);
  CHECK(measured_clock_ns() < kS);
}

void masks_have_a_next_one_down() {
  CHECK_EQ(lower_mask_of(kMaskDeep), kMaskNet);
  CHECK_EQ(lower_mask_of(kMaskNet), kMaskLight);
  CHECK_EQ(lower_mask_of(kMaskLight), kMaskApi);
  CHECK_EQ(lower_mask_of(kMaskApi), kMaskApi);
  CHECK_EQ(lower_mask_of(0), 0);
  CHECK_EQ(lower_mask_of(kMaskLight | kNetPlugin | kCeSync), kMaskLight | kCeSync);
}

}  // namespace

int main() {
  below_the_budget_nothing_happens();
  above_it_the_mask_goes_down_to_the_calls_and_stays();
  a_quiet_second_starts_the_count_anew();
  the_budget_is_the_users();
  the_price_of_measuring_is_not_the_price();
  masks_have_a_next_one_down();
  return failures();
}
