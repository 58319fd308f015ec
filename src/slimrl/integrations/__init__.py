"""Modules by which other programs import functions of plug-ins. The functions are entries of `slimrl.integrations`."""
