// The page at /.
#pragma once

#include <string_view>

namespace forge::server {

extern const std::string_view page_html;

}  // namespace forge::server
