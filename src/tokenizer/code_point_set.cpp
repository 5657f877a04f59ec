#include "code_point_set.h"

#include <algorithm>
#include <array>

namespace forge::unicode {
namespace {

constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

}  // namespace

void CodePointSet::add(const CodePointSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    sorted_ = false;
}

const std::vector<Range>& CodePointSet::ranges() const {
    if (sorted_) return ranges_;
    std::sort(ranges_.begin(), ranges_.end(), [](Range a, Range b) { return a.first < b.first; });
    std::vector<Range> merged;
    for (Range r : ranges_) {
        if (!merged.empty() && r.first <= merged.back().last + 1) {
            merged.back().last = std::max(merged.back().last, r.last);
        } else {
            merged.push_back(r);
        }
    }
    ranges_ = std::move(merged);
    sorted_ = true;
    return ranges_;
}

CodePointSet CodePointSet::complement() const {
    CodePointSet out;
    char32_t next = 0;
    for (Range r : ranges()) {
        if (r.first > next) out.add(next, r.first - 1);
        next = r.last + 1;
    }
    if (next <= 0x10FFFF) out.add(next, 0x10FFFF);
    return out;
}

bool CodePointSet::property(std::string_view name, CodePointSet& out) {
    std::array<bool, kCategoryNames.size()> wanted{};
    bool any = false;
    for (std::size_t i = 0; i < kCategoryNames.size(); ++i) {
        wanted[i] = kCategoryNames[i] == name || (name.size() == 1 && kCategoryNames[i][0] == name[0]);
        any = any || wanted[i];
    }
    if (!any) return false;
    CodePointSet assigned;
    for (std::size_t i = 0; i < kCategoryRangeCount; ++i) {
        const CategoryRange& r = kCategoryRanges[i];
        if (wanted[static_cast<std::size_t>(r.category)]) out.add(r.first, r.last);
        assigned.add(r.first, r.last);
    }
    if (wanted[static_cast<std::size_t>(Category::Cn)]) out.add(assigned.complement());
    return true;
}

CodePointSet CodePointSet::white_space() {
    CodePointSet out;
    for (Range r : kWhiteSpace) out.add(r.first, r.last);
    return out;
}

CodePointSet CodePointSet::word() {
    CodePointSet out;
    for (std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) property(name, out);
    for (Range r : kAlphabeticSymbols) out.add(r.first, r.last);
    return out;
}

}  // namespace forge::unicode
