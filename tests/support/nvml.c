/* A stand-in for libnvidia-ml.so.1: the functions that the meter calls.
 *
 * Of a card, `generation` is NVML's number of the architecture; one with A100 in its name has that compute capability and
 * no average power, and one with GH200 has the power of its module. A card with `mig` has one instance, `MIG-` for the
 * `GPU-` of its UUID. A fault may also be of a field, by its id and scope: `field/186/0`; one of `scopes` is
 * a driver that does not heed the scope. */

#include "sensor.h"

enum { OK, INVALID_ARGUMENT = 2, NOT_SUPPORTED, NOT_FOUND = 6 };
#define SENTINEL 1000 /* a fault that is no failure: the function gives all ones */

typedef void *handle;

struct pci_info { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; };
struct utilization { uint32_t gpu, memory; };
struct memory { uint64_t total, free, used; };
struct violation { uint64_t reference_us, violation_ns; };
struct temperature { uint32_t version; int32_t sensor, value; };
struct field_value {
  uint32_t id, scope;
  int64_t timestamp, latency;
  uint32_t type, status;
  union { double d; uint32_t ui; uint64_t ull; } value;
};

static struct card *of(handle device) {
  for (int i = 0; i < card_count; i++)
    if (device == &cards[i]) return &cards[i];
  return NULL; /* a MIG instance, whose handle lies one byte into its card */
}

/* Fails as the card is told to; each function of a card begins with it. */
#define CARD(device)                                      \
  struct card *card = of(device);                         \
  int status = card ? fault(card, __func__) : NOT_SUPPORTED; \
  if (status && status != SENTINEL) return status;
#define GIVE(out, number) (*(out) = status == SENTINEL ? -1 : (number), OK)

static int ga100(const struct card *card) { return strstr(card->name, "A100") != NULL; }
static int averages(const struct card *card) { return card->generation >= 7 && !ga100(card); }

static double power(const struct card *card, int average) {
  return mean_power(card, average ? card->average_s : card->window_s);
}

int nvmlInit_v2(void) {
  load_cards();
  return card_count ? fault(&cards[0], __func__) : OK;
}

int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int status) { return "an error of the stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = card_count;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
  if (index >= (unsigned)card_count) return INVALID_ARGUMENT;
  *device = &cards[index];
  return fault(&cards[index], __func__);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
  for (int i = 0; i < card_count; i++) {
    int instance = cards[i].mig && !strncmp(uuid, "MIG-", 4) && !strcmp(uuid + 4, cards[i].uuid + 4);
    if (!instance && strcmp(uuid, cards[i].uuid)) continue;
    *device = (char *)&cards[i] + instance;
    return OK;
  }
  return NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *parent) {
  *parent = (char *)device - 1;
  return of(*parent) ? OK : INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(handle device, char *text, unsigned size) {
  CARD(device)
  snprintf(text, size, "%s", card->uuid);
  return OK;
}

int nvmlDeviceGetName(handle device, char *text, unsigned size) {
  CARD(device)
  snprintf(text, size, "%s", card->name);
  return OK;
}

int nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *info) {
  CARD(device)
  unsigned function;
  sscanf(card->pci, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
  snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.%X", info->domain, info->bus, info->device, function);
  return OK;
}

int nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
  CARD(device)
  if (!ga100(card) && card->generation < 9) return NOT_SUPPORTED;
  *current = *pending = card->mig;
  return OK;
}

int nvmlDeviceGetArchitecture(handle device, unsigned *architecture) {
  CARD(device)
  return GIVE(architecture, card->generation);
}

int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
  static const int capabilities[] = {[4] = 60, 70, 75, 86, 89, 90, 100};
  CARD(device)
  int capability = ga100(card) ? 80 : card->generation <= 10 ? capabilities[card->generation] : 120;
  *major = capability / 10, *minor = capability % 10;
  return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(handle device, uint64_t *mJ) {
  CARD(device)
  return GIVE(mJ, (uint64_t)llround(counter(card) * 1e3));
}

int nvmlDeviceGetPowerUsage(handle device, uint32_t *mW) {
  CARD(device)
  return GIVE(mW, (uint32_t)lround(power(card, averages(card)) * 1e3));
}

int nvmlDeviceGetEnforcedPowerLimit(handle device, uint32_t *mW) {
  CARD(device)
  return GIVE(mW, (uint32_t)lround(card->limit * 1e3));
}

int nvmlDeviceGetTemperature(handle device, int sensor, uint32_t *celsius) {
  CARD(device)
  if (sensor) return INVALID_ARGUMENT;
  return GIVE(celsius, (uint32_t)lround(temperature(card)));
}

int nvmlDeviceGetTemperatureV(handle device, struct temperature *asked) {
  CARD(device)
  if (asked->version != 0x100000C || asked->sensor) return INVALID_ARGUMENT;
  return GIVE(&asked->value, (int32_t)lround(temperature(card)));
}

int nvmlDeviceGetClockInfo(handle device, int domain, uint32_t *MHz) {
  CARD(device)
  if (domain != 1 && domain != 2) return INVALID_ARGUMENT;
  return GIVE(MHz, domain == 1 ? 1980u : 2619u);
}

int nvmlDeviceGetUtilizationRates(handle device, struct utilization *rates) {
  CARD(device)
  if (card->mig) return NOT_SUPPORTED;
  rates->memory = 40;
  return GIVE(&rates->gpu, 87u);
}

int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
  CARD(device)
  memory->total = 80ull << 30, memory->free = 68ull << 30;
  return GIVE(&memory->used, 12ull << 30);
}

int nvmlDeviceGetCurrentClocksEventReasons(handle device, uint64_t *mask) {
  CARD(device)
  return GIVE(mask, (uint64_t)throttled(card));
}

int nvmlDeviceGetCurrentClocksThrottleReasons(handle device, uint64_t *mask) {
  CARD(device)
  return GIVE(mask, (uint64_t)throttled(card));
}

int nvmlDeviceGetViolationStatus(handle device, unsigned policy, struct violation *time) {
  static const unsigned masks[] = {0x4, 0x60, 0x10, 0x200, 0, 0x400}; /* power, thermal, sync, board, -, reliability */
  CARD(device)
  if (policy >= sizeof masks / sizeof *masks) return INVALID_ARGUMENT;
  time->reference_us = (uint64_t)(now() * 1e6);
  return GIVE(&time->violation_ns, card->throttle & masks[policy] ? (uint64_t)llround(throttled_s(card) * 1e9) : 0);
}

/* One field in mW or C: of the GPU, and where the card has that, of its module (scope 1) and its memory (scope 2). */
static int field(const struct card *card, struct field_value *asked) {
  static const double shares[] = {1, 1.5, .3};
  char name[32];
  snprintf(name, sizeof name, "field/%u/%u", asked->id, asked->scope);
  int status = fault(card, name);
  if (status && status != SENTINEL) return status;
  asked->type = 1; /* unsigned int */
  unsigned scope = fault(card, "scopes") ? 0 : asked->scope;
  if (asked->id == 82) return card->generation >= 9 || ga100(card) ? GIVE(&asked->value.ui, 55u) : NOT_SUPPORTED;
  if ((asked->id != 185 && asked->id != 186) || scope > 2) return INVALID_ARGUMENT;
  if (asked->id == 185 && !averages(card)) return NOT_SUPPORTED;
  if (scope == 1 && !strstr(card->name, "GH200")) return NOT_SUPPORTED;
  if (scope == 2 && card->generation < 9) return NOT_SUPPORTED;
  double share = shares[scope];
  return GIVE(&asked->value.ui, (uint32_t)lround(power(card, asked->id == 185) * share * 1e3));
}

int nvmlDeviceGetFieldValues(handle device, int count, struct field_value *values) {
  CARD(device)
  for (int i = 0; i < count; i++) values[i].status = field(card, &values[i]);
  return OK;
}
