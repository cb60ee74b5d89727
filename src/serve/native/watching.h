// The routes for those who watch the server: a page, a dashboard.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// False for a request without an admin key, where there are keys; it has been answered.
bool check_admin(const Call& call);

/// The abilities of a chat template.
Json capabilities_json(const TemplateCapabilities& can);

// The handlers of its routes.
void show_features(Call& call);
void watch_telemetry(Call& call);
void show_experts(Call& call);
void show_plan(Call& call);
void show_model(Call& call);
void show_options(Call& call);
void watch_log(Call& call);
void list_forecasts(Call& call);
void forecast_machine(Call& call);

}  // namespace moeflux::serve
