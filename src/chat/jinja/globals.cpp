// range, dict, namespace, raise_exception and strftime_now.
#include <ctime>

#include "jinja/evaluator.h"
#include "jinja/time_format.h"

namespace forge::jinja {
namespace {

constexpr std::int64_t max_range = 100000;

Value make_range(Evaluator& ev, Arguments& arguments) {
    if (!arguments.keyword.empty() || arguments.positional.empty() || arguments.positional.size() > 3)
        ev.fail("'range' takes one to three integers");
    auto object = std::make_shared<RangeObject>(&ev.heap());
    object->account(sizeof(RangeObject));
    const auto n = arguments.positional.size();
    object->start = n > 1 ? to_index(ev, "range", arguments.positional[0]) : 0;
    object->stop = to_index(ev, "range", arguments.positional[n > 1 ? 1 : 0]);
    object->step = n > 2 ? to_index(ev, "range", arguments.positional[2]) : 1;
    if (object->step == 0) ev.fail("the step of 'range' must not be zero");
    const BigInt start(object->start), stop(object->stop), step(object->step);
    const BigInt span = stop - start;
    if (!span.is_zero() && span.is_negative() == step.is_negative()) {
        // Rounded up: the last step may be a short one.
        const BigInt::Division d = span.divide(step);
        const BigInt length = d.remainder.is_zero() ? d.quotient : d.quotient + BigInt(1);
        const auto small = length.to_int64();
        if (!small || *small > max_range)
            ev.fail("'range' would have {} numbers; more than {} are not allowed", length.to_string(),
                    max_range);
        object->length = *small;
    }
    return Value(Kind::range, std::move(object));
}

// The arguments of dict() and namespace(): one dict or sequence of pairs, and keywords.
Dict make_map(Evaluator& ev, std::string_view name, Arguments& arguments) {
    Dict map;
    map.heap = &ev.heap();
    if (arguments.positional.size() > 1) ev.fail("'{}' takes at most one positional argument", name);
    const auto add = [&](const Value& key, const Value& value) {
        std::size_t hash = 0;
        if (!hash_value(key, hash)) ev.fail("{} cannot be the key of a dict", indefinite_type_name(key));
        map.set(key, value);
    };
    if (!arguments.positional.empty()) {
        const Value& first = arguments.positional[0];
        ev.need_defined(first);
        if (first.is(Kind::dict)) {
            ev.heap().step(first.dict().map.size());
            for (const Dict::Entry& e : first.dict().map.entries()) add(e.key, e.value);
        } else {
            for (const Value& pair : ev.collect(first)) {
                const Values parts = ev.collect(pair);
                if (parts.size() != 2) ev.fail("'{}' needs pairs of a key and a value", name);
                add(parts[0], parts[1]);
            }
        }
    }
    for (const auto& [key, value] : arguments.keyword) add(ev.string(key), value);
    return map;
}

Value raise_exception(Evaluator& ev, Arguments& arguments) {
    const auto a = bind(ev, "raise_exception", arguments, {"message"}, 1);
    throw TemplateError(TemplateError::Cause::raised, ev.text(*a[0]));
}

Value strftime_now(Evaluator& ev, Arguments& arguments) {
    const auto a = bind(ev, "strftime_now", arguments, {"format"}, 1);
    std::tm time{};
    if (ev.options().now) {
        const std::chrono::year_month_day date = *ev.options().now;
        if (!date.ok()) ev.fail("the date given for 'strftime_now' is not one of the calendar");
        const std::chrono::sys_days days = date;
        time.tm_year = static_cast<int>(date.year()) - 1900;
        time.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
        time.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
        time.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
        time.tm_yday = static_cast<int>((days - std::chrono::sys_days(date.year() / 1 / 1)).count());
    } else {
        const std::time_t now = std::time(nullptr);
#ifdef _WIN32
        localtime_s(&time, &now);
#else
        localtime_r(&now, &time);
#endif
    }
    const std::string& format = to_string_argument(ev, "strftime_now", *a[0]);
    ev.heap().work(format.size() * 16);
    ev.check_size(format.size() * 16);
    std::string out, unknown;
    if (!format_time(format, time, out, unknown))
        ev.fail("'strftime_now' does not know the directive '{}'", unknown);
    return ev.string(std::move(out));
}

}  // namespace

Dict make_globals(Evaluator& ev) {
    Dict globals;
    const auto add = [&](std::string_view name, std::function<Value(Evaluator&, Arguments&)> call) {
        globals.set(Value::literal(std::string(name)),
                    make_function(ev.heap(), std::string(name), std::move(call)));
    };
    add("range", make_range);
    add("dict", [](Evaluator& e, Arguments& arguments) {
        return make_dict(e.heap(), make_map(e, "dict", arguments));
    });
    add("namespace", [](Evaluator& e, Arguments& arguments) {
        return e.new_namespace(make_map(e, "namespace", arguments));
    });
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    return globals;
}

}  // namespace forge::jinja
