#include "roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/progress.h"
#include "table.h"
#include "usage.h"

namespace forge::cli {
namespace {

// bandwidth: Apple's announcements of each chip, largest configuration. 16-bit matrix rate: announced teraflops where
// Apple gave them (M1 and M2 families); M3 and M4: GPU cores x 256 operations x the clock that systems report;
// M5: four times the family before, as announced for its matrix units ("over four times the peak GPU compute for AI").
struct Chip {
    std::string_view name;
    double gbps, tflops;
    std::string_view rate_from;
};
constexpr std::string_view announced = "announced", from_cores = "cores x clock", from_ratio = "4 x M4, as announced";
constexpr Chip chips[] = {
    {"m1", 68, 2.6, announced},           {"m1-pro", 200, 5.2, announced},      {"m1-max", 400, 10.4, announced},
    {"m1-ultra", 800, 20.8, announced},   {"m2", 100, 3.6, announced},          {"m2-pro", 200, 6.8, announced},
    {"m2-max", 400, 13.6, announced},     {"m2-ultra", 800, 27.2, announced},   {"m3", 100, 3.5, from_cores},
    {"m3-pro", 150, 6.4, from_cores},     {"m3-max", 400, 14.1, from_cores},    {"m3-ultra", 819, 28.3, from_cores},
    {"m4", 120, 4.0, from_cores},         {"m4-pro", 273, 8.1, from_cores},     {"m4-max", 546, 16.2, from_cores},
    {"m5", 153, 16, from_ratio},          {"m5-pro", 307, 32, from_ratio},      {"m5-max", 614, 65, from_ratio},
};

const Chip& chip_named(const std::string& name) {
    for (const Chip& chip : chips)
        if (chip.name == name) return chip;
    fail_usage("--chip should be one of {}; found {}", chip_names(), name);
}

struct Bound { double seconds, bytes, flops; std::size_t launches = 0, stages = 0; };

// No launch can be faster than its bytes or its operations; launches of one stage may share the chip.
Bound bound_of(std::span<const LaunchProfile> launches, const Chip& chip) {
    Bound bound{};
    double bytes = 0, flops = 0;   // of the stage
    const auto end_stage = [&] {
        bound.seconds += std::max(bytes / (chip.gbps * 1e9), flops / (chip.tflops * 1e12));
        bytes = flops = 0;
    };
    for (const LaunchProfile& launch : launches) {
        if (launch.barrier) {
            end_stage();
            ++bound.stages;
        }
        bytes += static_cast<double>(launch.work.bytes);
        flops += static_cast<double>(launch.work.flops);
        bound.bytes += static_cast<double>(launch.work.bytes);
        bound.flops += static_cast<double>(launch.work.flops);
        ++bound.launches;
    }
    end_stage();
    ++bound.stages;
    return bound;
}

}  // namespace

std::string chip_names() {
    std::string names;
    for (const Chip& chip : chips) names += fmt::format("{}{}", names.empty() ? "" : ", ", chip.name);
    return names;
}

std::string roofline(const Engine& engine, const std::string& name) {
    const Chip& chip = chip_named(name);
    const auto right = Table::Align::right;
    Table table({{"test", right}, {"t/s at most", right}, {"limited by"}, {"MB a step", right}, {"GFLOP a step", right}, {"launches", right},
                 {"stages", right}, {"lost per us a stage", right}});
    const auto add = [&](int rows, int position, const std::string& test) {
        const Bound bound = bound_of(engine.predict(rows, position), chip);
        // Of a token the device's own launches, which may be several of the program in one.
        StepCounts counts = rows == 1 ? engine.step_counts() : StepCounts{static_cast<int>(bound.launches), static_cast<int>(bound.stages)};
        if (position > 0 && position >= counts.short_context) {
            counts.launches += counts.longer;
            counts.stages += counts.longer;
        }
        const bool memory = bound.bytes / chip.gbps >= bound.flops / chip.tflops / 1e3;
        table.add({test, fmt::format("{:.0f}", rows / bound.seconds), memory ? "memory" : "arithmetic", fmt::format("{:.1f}", bound.bytes / 1e6),
                   fmt::format("{:.1f}", bound.flops / 1e9), std::to_string(counts.launches), std::to_string(counts.stages),
                   fmt::format("{:.1f} %", 100 * counts.stages * 1e-6 / (bound.seconds + counts.stages * 1e-6))});
    };
    const int ctx = engine.options().ctx, chunk = engine.options().chunk;
    add(chunk, 0, fmt::format("pp{}", chunk));
    add(1, 0, "tg1");
    for (const int depth : {4096, 32768, 131072})
        if (depth < ctx) add(1, depth, fmt::format("tg1@d{}", depth));
    return fmt::format("bound of {}: {:.0f} GB/s, {:.1f} TFLOP/s in 16 bits ({}). Computed from data sheets and this program's own bytes and\n"
                       "operations (as lowered for {}); not measured, and no launch costs anything in it.\n\n{}",
                       chip.name, chip.gbps, chip.tflops, chip.rate_from, engine.backend_name(), table.text());
}

}  // namespace forge::cli
