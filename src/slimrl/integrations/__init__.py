"""Names by which other programs load functions of plug-ins: those of `slimrl.integrations`."""
