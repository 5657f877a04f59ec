#include "tune/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace forge::tune {

std::string Difference::text() const {
    if (not_numbers > 0) return fmt::format("{} elements are not numbers", not_numbers);
    if (compared == 0) return "nothing was compared";
    if (max_error > max_bound()) return fmt::format("max err {:.3e} of {:.3e}", max_error, largest);
    return fmt::format("max err {:.3e} of {:.3e}, rms {:.2e}, bound {:.2e}", max_error, largest, rms, rms_bound);
}

double rms_bound(DType type) { return type == DType::bf16 ? 0x1p-6 : type == DType::f16 ? 0x1p-9 : 1e-4; }

Difference compare(std::span<const float> got, std::span<const float> wanted, DType type, int rows) {
    Difference d;
    d.rms_bound = rms_bound(type);
    d.rows = rows;
    double squares = 0, errors = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const auto g = static_cast<double>(got[i]), w = static_cast<double>(wanted[i]);
        if (!std::isfinite(g)) {
            ++d.not_numbers;
            continue;
        }
        if (std::isnan(w)) continue;
        ++d.compared;
        d.largest = std::max(d.largest, std::fabs(w));
        d.max_error = std::max(d.max_error, std::fabs(g - w));
        squares += w * w;
        errors += (g - w) * (g - w);
    }
    d.rms = squares > 0 ? std::sqrt(errors / squares) : errors > 0 ? INFINITY : 0;
    return d;
}

Difference worse(const Difference& a, const Difference& b) {
    if (a.ok() != b.ok()) return a.ok() ? b : a;
    const auto share = [](const Difference& d) {
        return d.not_numbers > 0 || d.compared == 0 ? INFINITY : std::max(d.max_bound() > 0 ? d.max_error / d.max_bound() : 0, d.rms_bound > 0 ? d.rms / d.rms_bound : 0);
    };
    return share(b) > share(a) ? b : a;
}

}  // namespace forge::tune
