// libcurl's header, in one place.
#pragma once

#include <curl/curl.h>  // IWYU pragma: export
