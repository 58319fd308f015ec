"""Programs that serve a judge or a sandbox: installed, started, watched and stopped."""
