/* Cards whose power follows a script: what the fakes of the vendors' libraries share.
 *
 * FAKE_CARDS names the script, which tests/support/cards.py writes: one word and its values a line. Power follows a
 * closed form of the time, so that its integral is exact. Time is CLOCK_MONOTONIC, or the nanoseconds in the first
 * eight bytes of a file that the test writes to (`clock PATH`). */

#include <math.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CARDS 16
#define FAULTS 32

struct fault { char function[80]; int code; double from, until; };

struct card {
  char uuid[80], pci[40], name[80], shape[16];
  int generation, mig, hip_index;
  double a, b, period, width;                    /* of the curve */
  double update_s, window_s, average_s, counter_update_s, counter_scale, latency_s;
  double temperature, temperature_rise, limit;   /* C, C/s, W */
  double stuck_from, backwards_from, backwards_by;
  unsigned long long throttle; double throttle_from, throttle_until;
  struct fault faults[FAULTS]; int fault_count;
};

static struct card cards[CARDS];
static int card_count = -1;
static double origin_s;
static volatile int64_t *virtual_ns;

static double now(void) {
  if (virtual_ns) return *virtual_ns / 1e9;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void load_cards(void) {
  if (card_count >= 0) return;
  card_count = 0;
  const char *path = getenv("FAKE_CARDS");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file) return;
  char line[512], key[64];
  struct card *card = NULL;
  while (fgets(line, sizeof line, file)) {
    int used = 0;
    if (sscanf(line, "%63s %n", key, &used) != 1) continue;
    char *rest = line + used;
    rest[strcspn(rest, "\n")] = 0;
    if (!strcmp(key, "origin")) { origin_s = atof(rest); continue; }
    if (!strcmp(key, "clock")) {
      int descriptor = open(rest, O_RDONLY);
      virtual_ns = mmap(NULL, 8, PROT_READ, MAP_SHARED, descriptor, 0);
      close(descriptor);
      continue;
    }
    if (!strcmp(key, "card")) {
      card = &cards[card_count++];
      *card = (struct card){.update_s = .1, .window_s = .1, .average_s = 1, .counter_update_s = .02, .counter_scale = 1,
                            .stuck_from = INFINITY, .backwards_from = INFINITY, .throttle_from = INFINITY,
                            .throttle_until = INFINITY, .temperature = 40, .limit = 700, .hip_index = card_count - 1};
      continue;
    }
    if (!card) continue;
    if (!strcmp(key, "fault")) {
      struct fault *fault = &card->faults[card->fault_count++];
      fault->until = INFINITY;
      sscanf(rest, "%79s %d %lf %lf", fault->function, &fault->code, &fault->from, &fault->until);
    } else if (!strcmp(key, "curve")) {
      sscanf(rest, "%15s %lf %lf %lf %lf", card->shape, &card->a, &card->b, &card->period, &card->width);
    } else if (!strcmp(key, "throttle")) {
      sscanf(rest, "%llu %lf %lf", &card->throttle, &card->throttle_from, &card->throttle_until);
    } else if (!strcmp(key, "backwards")) {
      sscanf(rest, "%lf %lf", &card->backwards_from, &card->backwards_by);
    }
#define TEXT(field) else if (!strcmp(key, #field)) snprintf(card->field, sizeof card->field, "%s", rest);
#define NUMBER(field) else if (!strcmp(key, #field)) card->field = atof(rest);
    TEXT(uuid) TEXT(pci) TEXT(name)
    NUMBER(generation) NUMBER(mig) NUMBER(hip_index) NUMBER(update_s) NUMBER(window_s) NUMBER(average_s)
    NUMBER(counter_update_s) NUMBER(counter_scale) NUMBER(latency_s) NUMBER(temperature) NUMBER(temperature_rise)
    NUMBER(limit) NUMBER(stuck_from)
  }
  fclose(file);
}

/* Time with the power at its higher value until t, for a wave that is high for `width` of each `period` (s). */
static double high_s(const struct card *card, double t) {
  double periods = floor(t / card->period), rest = t - periods * card->period;
  return periods * card->width + fmin(rest, card->width);
}

/* Energy since the origin, J. */
static double energy(const struct card *card, double t) {
  t -= origin_s;
  if (!strcmp(card->shape, "ramp")) { /* from a to b within period, then b */
    double within = fmin(t, card->period);
    return card->a * within + (card->b - card->a) * within * within / (2 * card->period) + card->b * (t - within);
  }
  if (!strcmp(card->shape, "wave")) return card->a * t + (card->b - card->a) * high_s(card, t);
  return card->a * t; /* constant */
}

/* A value that is refreshed every `update_s`: the time of its last refresh. */
static double refreshed(double t, double update_s) { return origin_s + floor((t - origin_s) / update_s) * update_s; }

static double mean_power(const struct card *card, double window_s) {
  double t = refreshed(now(), card->update_s);
  return (energy(card, t) - energy(card, t - window_s)) / window_s;
}

static double counter(const struct card *card) {
  double t = now(), back = t - origin_s >= card->backwards_from ? card->backwards_by : 0;
  t = fmin(t, origin_s + card->stuck_from);
  return card->counter_scale * energy(card, refreshed(t, card->counter_update_s)) - back;
}

static unsigned long long throttled(const struct card *card) {
  double t = now() - origin_s;
  return t >= card->throttle_from && t < card->throttle_until ? card->throttle : 0;
}

/* Seconds throttled so far. */
static double throttled_s(const struct card *card) {
  double t = now() - origin_s;
  return t < card->throttle_from ? 0 : fmin(t, card->throttle_until) - card->throttle_from;
}

static double temperature(const struct card *card) {
  return card->temperature + card->temperature_rise * (now() - origin_s);
}

/* The code that a function of a card is told to fail with now, or 0; code -1 hangs. Takes the card's latency. */
static int fault(const struct card *card, const char *function) {
  if (card->latency_s > 0) usleep(card->latency_s * 1e6);
  double t = now() - origin_s;
  for (int i = 0; i < card->fault_count; i++) {
    const struct fault *each = &card->faults[i];
    if (strcmp(each->function, function) || t < each->from || t >= each->until) continue;
    while (each->code == -1) sleep(1000);
    return each->code;
  }
  return 0;
}
