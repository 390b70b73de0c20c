/* A stand-in for libamd_smi.so: the functions that the meter calls. The others that the binding names are stubs, and the
 * structures are checked against the binding's (`layout.h`, both written by tests/support/amdsmi.py).
 *
 * Of a card, `hip_index` is its place among HIP's, `generation` 9 one with violation counters, and less one with the
 * mask of throttling instead. */

#include "sensor.h"
#include <stddef.h>

#define NONE UINT64_MAX
#define STEP_UJ 15.3f
#define TEXT_LENGTH 256

typedef void *handle;

struct amdsmi_enumeration_info_t { uint32_t drm_render, drm_card, hsa_id, hip_id; char hip_uuid[TEXT_LENGTH]; };

struct amdsmi_asic_info_t {
  char market_name[TEXT_LENGTH];
  uint32_t vendor_id;
  char vendor_name[TEXT_LENGTH];
  uint32_t subvendor_id;
  uint64_t device_id;
  uint32_t rev_id;
  char asic_serial[TEXT_LENGTH];
  uint32_t oam_id, num_of_compute_units;
  uint64_t target_graphics_version;
  uint32_t subsystem_id, rest[21];
};

struct amdsmi_power_info_t {
  uint64_t socket_power;
  uint32_t current_socket_power, average_socket_power;
  uint64_t gfx_voltage, soc_voltage, mem_voltage;
  uint32_t power_limit;
  uint64_t rest[18];
};

struct amdsmi_clk_info_t { uint32_t clk, min_clk, max_clk; uint8_t clk_locked, clk_deep_sleep; uint32_t rest[4]; };

struct amdsmi_engine_usage_t { uint32_t gfx_activity, umc_activity, mm_activity, rest[13]; };

#include "layout.h"

static struct card *of(handle processor) { return &cards[(uintptr_t)processor - 1]; }

/* Fails as the card is told to; each function of a card begins with it. */
#define CARD(function) \
  struct card *card = of(processor); \
  int status = fault(card, function); \
  if (status && status < 1000) return status;

/* A fault of 1000 is no failure: the function gives the numbers that stand for no reading. */
#define SENTINEL (status == 1000)

int amdsmi_init(uint64_t flags) {
  load_cards();
  return card_count ? fault(&cards[0], "amdsmi_init") : 34;
}

/* A socket for each card, and one processor in it. */
int amdsmi_get_socket_handles(uint32_t *count, handle *sockets) {
  for (int i = 0; sockets && i < card_count; i++) sockets[i] = (handle)(uintptr_t)(i + 1);
  *count = fault(&cards[0], "amdsmi_get_socket_handles") ? 0 : card_count;
  return 0;
}

int amdsmi_get_processor_handles(handle socket, uint32_t *count, handle *processors) {
  if (processors) processors[0] = socket;
  *count = 1;
  return 0;
}

int amdsmi_get_gpu_device_uuid(handle processor, uint32_t *length, char *uuid) {
  CARD("amdsmi_get_gpu_device_uuid")
  snprintf(uuid, *length, "%s", card->uuid);
  return 0;
}

int amdsmi_get_gpu_device_bdf(handle processor, uint64_t *bdf) {
  CARD("amdsmi_get_gpu_device_bdf")
  unsigned domain, bus, device, function;
  if (sscanf(card->pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return 43;
  *bdf = (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
  return 0;
}

int amdsmi_get_gpu_asic_info(handle processor, struct amdsmi_asic_info_t *info) {
  CARD("amdsmi_get_gpu_asic_info")
  memset(info, 0, sizeof *info);
  strcpy(info->market_name, card->name);
  strcpy(info->asic_serial, "0x1A2B");
  return 0;
}

int amdsmi_get_gpu_enumeration_info(handle processor, struct amdsmi_enumeration_info_t *info) {
  CARD("amdsmi_get_gpu_enumeration_info")
  memset(info, 0, sizeof *info);
  info->hip_id = SENTINEL ? UINT32_MAX : card->hip_index;
  snprintf(info->hip_uuid, TEXT_LENGTH, "GPU-%016x", card->hip_index + 10);
  return 0;
}

int amdsmi_get_energy_count(handle processor, uint64_t *count, float *step_uj, uint64_t *time_ns) {
  CARD("amdsmi_get_energy_count")
  *count = SENTINEL ? NONE : (uint64_t)(counter(card) / (STEP_UJ * 1e-6));
  *step_uj = STEP_UJ;
  *time_ns = now() * 1e9;
  return 0;
}

/* The generations that have the one power give 65535 for the other. */
int amdsmi_get_power_info(handle processor, struct amdsmi_power_info_t *info) {
  CARD("amdsmi_get_power_info")
  memset(info, 0, sizeof *info);
  int recent = card->generation >= 9;
  info->current_socket_power = SENTINEL ? UINT32_MAX : recent ? lround(mean_power(card, card->window_s)) : 65535;
  info->average_socket_power = SENTINEL || recent ? 65535 : lround(mean_power(card, card->average_s));
  info->power_limit = SENTINEL ? UINT32_MAX : card->limit * 1e6;
  return 0;
}

/* Junction (1) where the card has it, edge (0) 10 degrees below it, memory (2) 5 above. */
int amdsmi_get_temp_metric(handle processor, uint32_t sensor, uint32_t metric, int64_t *value) {
  CARD(sensor == 1 ? "amdsmi_get_temp_metric:hotspot" : "amdsmi_get_temp_metric")
  if (metric != 0 || sensor > 2) return 2;
  *value = SENTINEL ? 65535 : temperature(card) + (int[]){-10, 0, 5}[sensor];
  return 0;
}

int amdsmi_get_clock_info(handle processor, uint32_t clock, struct amdsmi_clk_info_t *info) {
  CARD("amdsmi_get_clock_info")
  memset(info, 0, sizeof *info);
  info->clk = SENTINEL ? UINT32_MAX : clock == 0 ? 2100 : clock == 4 ? 1300 : 0;
  return 0;
}

int amdsmi_get_gpu_activity(handle processor, struct amdsmi_engine_usage_t *usage) {
  CARD("amdsmi_get_gpu_activity")
  memset(usage, 0, sizeof *usage);
  usage->gfx_activity = SENTINEL ? 65535 : 97;
  return 0;
}

int amdsmi_get_gpu_memory_usage(handle processor, uint32_t type, uint64_t *used) {
  CARD("amdsmi_get_gpu_memory_usage")
  *used = SENTINEL ? NONE : type == 0 ? 3ull << 30 : 0;
  return 0;
}

/* Of the table, what tells of throttling; of the bits of the mask, four have a counter too. */
int amdsmi_get_gpu_metrics_info(handle processor, char *table) {
  CARD("amdsmi_get_gpu_metrics_info")
  memset(table, 0xff, SIZE_amdsmi_gpu_metrics_t);
  if (SENTINEL) return 0;
#define PUT(field, value) *(uint64_t *)(table + OFFSET_##field) = (value)
  PUT(system_clock_counter, now() * 1e9);
  if (card->generation < 9) {
    PUT(indep_throttle_status, throttled(card));
    return 0;
  }
  uint64_t samples = throttled_s(card) * 1000; /* the firmware counts a thousand a second */
  PUT(accumulation_counter, (now() - origin_s) * 1000);
  PUT(prochot_residency_acc, card->throttle >> 47 & 1 ? samples : 0);
  PUT(ppt_residency_acc, card->throttle & 1 ? samples : 0);
  PUT(socket_thm_residency_acc, card->throttle >> 36 & 1 ? samples : 0);
  PUT(hbm_thm_residency_acc, card->throttle >> 34 & 1 ? samples : 0); /* it has none for the voltage regulator */
  return 0;
}
